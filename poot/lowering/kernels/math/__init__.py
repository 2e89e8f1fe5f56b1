"""Elementwise functions on scalars, written against the SPIR-V builder."""
