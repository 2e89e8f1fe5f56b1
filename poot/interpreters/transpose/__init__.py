"""Transposes of linear primitives, for reverse-mode differentiation."""
