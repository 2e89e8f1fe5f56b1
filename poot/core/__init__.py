"""Ops, types, graphs, rule tables and the cell of the current interpreter."""
