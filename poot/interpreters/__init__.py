"""Interpreters give ops their meaning: eager evaluation, staging, jit; and Array."""
