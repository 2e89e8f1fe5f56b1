"""Batching: rules of all primitives and the interpreter of `vmap`."""
