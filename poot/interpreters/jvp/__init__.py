"""Forward-mode differentiation: rules of all primitives and their interpreter."""
