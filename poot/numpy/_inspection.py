"""Shapes, text and kinds of anything that counts as an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.interpreters.methods import Value
from poot.interpreters.promotion import is_number, is_value
from poot.interpreters.shaping import canonical_axis
from poot.numpy._creation import asarray


def shape(a: Any) -> tuple[int, ...]:
    """The size of each axis."""
    return a.shape if is_value(a) else asarray(a).shape


def ndim(a: Any) -> int:
    """The number of axes."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, or the size of one axis."""
    if axis is None:
        return int(np.prod(shape(a), dtype=np.int64))
    return shape(a)[canonical_axis(axis, ndim(a), "size")]


def isscalar(element: Any) -> bool:
    """Whether it is a number, or an array without axes."""
    return is_number(element) or (is_value(element) and not element.ndim)


def iterable(y: Any) -> bool:
    """Whether `iter` takes it: not what has no axes."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


def iscomplexobj(x: Any) -> bool:
    """False: all dtypes are real."""
    asarray(x)
    return False


def isrealobj(x: Any) -> bool:
    """True: all dtypes are real."""
    return not iscomplexobj(x)


def array_repr(arr: Value) -> str:
    """The text that `repr` gives."""
    return repr(arr)


def array_str(a: Value) -> str:
    """The text that `str` gives."""
    return str(a)
