"""Kernels: Python functions over the typed SPIR-V builder."""
