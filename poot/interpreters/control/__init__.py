"""Control flow: loops and choices over traced values, as ops with sub-graphs."""
