"""poot: JAX's programming model on any GPU with a Vulkan driver."""
