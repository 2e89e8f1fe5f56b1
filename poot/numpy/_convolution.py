"""Convolution and correlation of vectors."""

from __future__ import annotations

from typing import Any

from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, ShapeError
from poot.core.op import Op
from poot.core.ops.conv import Conv
from poot.interpreters.contraction import as_precision, contracted
from poot.interpreters.methods import Value
from poot.interpreters.promotion import promote_inexact
from poot.interpreters.shaping import reshape
from poot.numpy._creation import asarray
from poot.numpy._moving import flip


def convolve(
    a: Any,
    v: Any,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The sums of a[i] v[n - i] for each n, of vectors; in a float dtype, as in JAX.

    `mode`: "full" for each n with any product, "same" for as many as the longer vector
    has elements, "valid" for those where the shorter one overlaps wholly.
    """
    x, y = _vectors("convolve", a, v)
    if x.size < y.size:
        x, y = y, x
    low, high = _padding("convolve", mode, x.size, y.size)
    return _slid(x, flip(y), (low, high), precision, preferred_element_type)


def correlate(
    a: Any,
    v: Any,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The sums of a[n + i] v[i] for each n, of vectors; in a float dtype, as in JAX."""
    x, y = _vectors("correlate", a, v)
    turned = x.size < y.size
    if turned:
        x, y = y, x
    low, high = _padding("correlate", mode, x.size, y.size)
    sums = _slid(x, y, (low, high), precision, preferred_element_type)
    # Of an exchanged pair the places come in the other order.
    return flip(sums) if turned else sums


def _vectors(where: str, a: Any, v: Any) -> tuple[Value, Value]:
    x, y = promote_inexact(where, asarray(a), asarray(v)).operands
    for vector in (x, y):
        if vector.ndim != 1 or not vector.size:
            raise ShapeError(
                f"poot.numpy.{where}: given shapes {x.shape} and {y.shape}, takes "
                "vectors of one element or more"
            )
    return x, y


def _padding(where: str, mode: str, size: int, window: int) -> tuple[int, int]:
    """Zeros before and behind the longer vector."""
    if mode == "full":
        return window - 1, window - 1
    if mode == "same":
        return window // 2, window - window // 2 - 1
    if mode == "valid":
        return 0, 0
    raise ArgumentError(
        f"poot.numpy.{where}: mode is {mode!r}, takes 'full', 'same' or 'valid'"
    )


def _slid(
    x: Value, y: Value, pads: tuple[int, int], precision: Any, preferred: Any
) -> Value:
    as_precision(precision)

    def op(out: DType | None) -> Op:
        return Conv((1,), (pads,), (1,), (1,), out=out)

    signal, window = reshape(x, (1, 1, -1)), reshape(y, (1, 1, -1))
    promoted = promote_inexact("convolve", signal, window)
    sums = contracted("convolve", op, signal, window, promoted, preferred)
    return reshape(sums, (-1,))
