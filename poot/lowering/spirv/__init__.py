"""poot's own SPIR-V: a module writer, and the typed builder that kernels use."""
