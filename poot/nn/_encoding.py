"""Classes as vectors."""

from __future__ import annotations

import operator
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.errors import DTypeError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, default_float
from poot.interpreters.shaping import as_element_type, canonical_axis


def one_hot(
    x: Any, num_classes: int, *, dtype: Any = None, axis: int | str = -1
) -> Value:
    """1 where an element of x is the index along a new axis, else 0.

    x: [...] of integers; the result has `num_classes` more at `axis`, in the default
    float dtype or `dtype`. Elements that are no class give zeros. The name of an axis
    that vmap maps, of that size, stands for the new axis.
    """
    indices = jnp.asarray(x)
    if not indices.type.dtype.is_integer:
        raise DTypeError(
            f"nn.one_hot: takes integers, given {indices.type.dtype}; cast with "
            ".astype(…)"
        )
    count = operator.index(num_classes)
    if count < 0:
        raise ShapeError(f"nn.one_hot: num_classes is {count}, takes 0 and above")
    # Narrow integers would wrap at the classes that they do not reach.
    if indices.type.dtype.itemsize < dtypes.int32.itemsize:
        indices = cast_to(indices, dtypes.int32)
    wanted = default_float() if dtype is None else as_element_type(dtype)
    if isinstance(axis, str):
        if lax.axis_size(axis) != count:
            raise ShapeError(
                f"nn.one_hot: {count} classes along axis {axis!r}, whose size is "
                f"{lax.axis_size(axis)}; the two must be equal"
            )
        return cast_to(jnp.equal(indices, lax.axis_index(axis)), wanted)
    place = canonical_axis(axis, indices.ndim + 1, "nn.one_hot")
    shape = [count if i == place else 1 for i in range(indices.ndim + 1)]
    classes = lax.broadcasted_iota(indices.dtype, shape, place)
    return cast_to(jnp.equal(jnp.expand_dims(indices, place), classes), wanted)
