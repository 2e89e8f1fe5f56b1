"""The Vulkan side: devices, memory, recorded command buffers, executables."""
