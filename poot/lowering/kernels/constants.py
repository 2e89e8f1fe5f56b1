"""Literals in compute form, and constants that no driver can calculate with."""

from __future__ import annotations

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.lowering.kernels.math import form
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import F32, F64, U32, vector


def literal(k: KernelBuilder, scalar: Scalar) -> Value:
    """A literal in compute form."""
    dtype = scalar.dtype
    if dtype.is_float and dtype.itemsize < 4:
        scalar = Scalar.of(scalar.value, dtypes.float32)
    if dtype.is_integer:
        return k.const(form(dtype), int(scalar.value))
    made = k.bits(form(dtype), scalar.bits)
    return hidden(k, made) if dtype.is_float else made


def hidden(k: KernelBuilder, number: Value) -> Value:
    """The same float, but not as a constant.

    Drivers take 0 * x for 0 and x + 0 for x where one operand is a constant (lavapipe
    does), or fold constants to such a zero, which IEEE 754 does not allow.
    """
    zero = _unknown_zero(k)
    if number.ty is not F64:
        return k.bitcast(k.xor(k.bitcast(number, U32), zero), F32)
    two = vector(U32, 2)
    words = k.bitcast(number, two)
    return k.bitcast(k.xor(words, k.splat(zero, 2)), F64)


def _unknown_zero(k: KernelBuilder) -> Value:
    """A u32 that is 0 since there are at most 2**31 workgroups."""
    return k.shr(k.workgroup_index(), 31)
