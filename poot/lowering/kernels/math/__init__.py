"""Elementwise functions on scalars, written against the SPIR-V builder.

Drivers' own functions may be thousands of ulps off, and Vulkan permits that; these are
within 4 ulp (most within 2) over their whole domains, and correctly rounded for
division and square root.
"""

from poot.lowering.kernels.math.conversion import (
    cast,
    form,
    pack16,
    round_to,
    to_odd_f32,
    unpack16,
)
from poot.lowering.kernels.math.tables import lower_binary, lower_unary

__all__ = [
    "cast",
    "form",
    "lower_binary",
    "lower_unary",
    "pack16",
    "round_to",
    "to_odd_f32",
    "unpack16",
]
