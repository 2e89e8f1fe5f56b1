"""The vocabulary: one file a family, each op with its parameters and type rule."""
