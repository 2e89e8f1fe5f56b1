"""Elementwise functions on scalars, written against the SPIR-V builder.

Drivers' own functions may be thousands of ulps off, and Vulkan permits that; these are
within 4 ulp (most within 2) over their whole domains, and correctly rounded for
division and square root.
"""

from poot.lowering.kernels.math.conversion import (
    cast,
    form,
    round_to,
    to_odd_f32,
)
from poot.lowering.kernels.math.halves import (
    is_half,
    pack16,
    pack_pair,
    unpack16,
    unpack_pair,
)
from poot.lowering.kernels.math.tables import lower_binary, lower_unary

__all__ = [
    "cast",
    "form",
    "is_half",
    "lower_binary",
    "lower_unary",
    "pack16",
    "pack_pair",
    "round_to",
    "to_odd_f32",
    "unpack16",
    "unpack_pair",
]
