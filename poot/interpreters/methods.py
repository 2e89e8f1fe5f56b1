"""The operators and methods that arrays and traced values share."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from poot.interpreters import (
    arithmetic,
    contraction,
    cumulative,
    dlpack,
    moving,
    reductions,
    rounding,
    shaping,
    sorting,
    taking,
)
from poot.interpreters.backend import backend
from poot.interpreters.indexing import getitem
from poot.interpreters.promotion import is_operand
from poot.interpreters.updating import IndexUpdater
from poot.interpreters.value import AbstractValue

R = TypeVar("R")
# The module that arrays name as their namespace: it stands above them.
_namespaces: list[Any] = []


def set_array_namespace(module: Any) -> None:
    """Say which module has the functions of arrays, for the array API."""
    _namespaces[:] = [module]


def _operator(function: Callable[[Any, Any], R]) -> Callable[[Any, Any], R]:
    """The method of a binary operator, which leaves foreign operands to their type."""

    def method(self: Any, other: Any) -> R:
        return function(self, other) if is_operand(other) else NotImplemented

    return method


def _reflected(function: Callable[[Any, Any], R]) -> Callable[[Any, Any], R]:
    """The method of the same operator with the value on the right."""

    def method(self: Any, other: Any) -> R:
        return function(other, self) if is_operand(other) else NotImplemented

    return method


class Value(AbstractValue):
    """What code computes with: a `poot.Array`, or a traced value that stands for one.

    In-place operators bind the name to a new value; elements never change.
    """

    __slots__ = ()
    # Before numpy.ndarray, so that `ndarray * value` comes here.
    __array_priority__: ClassVar[int] = 1000

    __add__ = _operator(arithmetic.add)
    __radd__ = _reflected(arithmetic.add)
    __sub__ = _operator(arithmetic.subtract)
    __rsub__ = _reflected(arithmetic.subtract)
    __mul__ = _operator(arithmetic.multiply)
    __rmul__ = _reflected(arithmetic.multiply)
    __truediv__ = _operator(arithmetic.true_divide)
    __rtruediv__ = _reflected(arithmetic.true_divide)
    __floordiv__ = _operator(arithmetic.floor_divide)
    __rfloordiv__ = _reflected(arithmetic.floor_divide)
    __mod__ = _operator(arithmetic.remainder)
    __rmod__ = _reflected(arithmetic.remainder)
    __divmod__ = _operator(arithmetic.divmod_)
    __rdivmod__ = _reflected(arithmetic.divmod_)
    __pow__ = _operator(arithmetic.power)
    __rpow__ = _reflected(arithmetic.power)
    __matmul__ = _operator(contraction.matmul)
    __rmatmul__ = _reflected(contraction.matmul)
    __and__ = _operator(arithmetic.bitwise_and)
    __rand__ = _reflected(arithmetic.bitwise_and)
    __or__ = _operator(arithmetic.bitwise_or)
    __ror__ = _reflected(arithmetic.bitwise_or)
    __xor__ = _operator(arithmetic.bitwise_xor)
    __rxor__ = _reflected(arithmetic.bitwise_xor)
    __lshift__ = _operator(arithmetic.left_shift)
    __rlshift__ = _reflected(arithmetic.left_shift)
    __rshift__ = _operator(arithmetic.right_shift)
    __rrshift__ = _reflected(arithmetic.right_shift)
    # Python's own == gives a bool; this one gives an array of them.
    __eq__ = _operator(arithmetic.equal)  # type: ignore[arg-type]
    __ne__ = _operator(arithmetic.not_equal)  # type: ignore[arg-type]
    __lt__ = _operator(arithmetic.less)
    __le__ = _operator(arithmetic.less_equal)
    __gt__ = _operator(arithmetic.greater)
    __ge__ = _operator(arithmetic.greater_equal)
    # Elements are compared by ==, so that values cannot be keys.
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Value:
        return arithmetic.negative(self)

    def __pos__(self) -> Value:
        return arithmetic.positive(self)

    def __abs__(self) -> Value:
        return arithmetic.absolute(self)

    def __invert__(self) -> Value:
        return arithmetic.invert(self)

    def __round__(self, decimals: int | None = None) -> Value:
        if decimals is not None:
            return rounding.round_(self, decimals)
        rounded = rounding.round_(self)
        return rounded.astype(int) if self.type.dtype.is_float else rounded

    def __getitem__(self, index: Any) -> Value:
        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "the elements of an array never change; x = x.at[index].set(value) makes a "
            "new one"
        )

    @property
    def at(self) -> IndexUpdater:
        """Changed copies: `x.at[index].set(values)`, `.add`, `.get` and their kin."""
        return IndexUpdater(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no len()")
        return self.shape[0]

    def __contains__(self, item: Any) -> bool:
        return bool(reductions.any(arithmetic.equal(self, item)))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module with the functions of arrays, for code that takes any library's.

        ValueError for a version of the array API other than that module's.
        """
        (namespace,) = _namespaces
        known = namespace.__array_api_version__
        if api_version is not None and api_version > known:
            raise ValueError(
                f"poot.numpy has the array API's version {known}, asked for "
                f"{api_version}"
            )
        return namespace

    # --- shape and dtype ----------------------------------------------------

    @property
    def device(self) -> Any:
        """The device that poot runs on."""
        return backend().devices[0]

    def to_device(self, device: Any, *, stream: None = None) -> Value:
        """The value itself: there is one device."""
        dlpack.require_device("to_device", device)
        return self

    @property
    def T(self) -> Value:
        """The axes in reverse order."""
        return shaping.transpose(self)

    @property
    def mT(self) -> Value:
        """The last two axes exchanged."""
        return shaping.swapaxes(self, -1, -2)

    @property
    def real(self) -> Value:
        """The value itself: all dtypes are real."""
        return self

    @property
    def imag(self) -> Value:
        """Zeros: all dtypes are real."""
        return shaping.zeros_of(self)

    def copy(self) -> Value:
        """The same elements, which live on if these are donated or deleted."""
        return copying.copy(self)

    def conj(self) -> Value:
        """The value itself: all dtypes are real."""
        return self

    conjugate = conj

    def reshape(self, *shape: Any, order: str = "C") -> Value:
        """Another shape, given as one tuple or size by size; one may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return shaping.reshape(self, given, order)

    def transpose(self, *axes: Any) -> Value:
        """The axes in another order: in reverse, or as given."""
        given = axes[0] if len(axes) == 1 else axes or None
        return shaping.transpose(self, given)

    astype = shaping.astype
    view = shaping.view
    ravel = shaping.ravel
    flatten = shaping.ravel
    swapaxes = shaping.swapaxes
    squeeze = shaping.squeeze
    diagonal = moving.diagonal
    trace = moving.trace
    repeat = moving.repeat
    take = taking.take
    sort = sorting.sort
    argsort = sorting.argsort
    searchsorted = sorting.searchsorted

    # --- reductions ---------------------------------------------------------

    sum = reductions.sum
    prod = reductions.prod
    max = reductions.max
    min = reductions.min
    any = reductions.any
    all = reductions.all
    argmax = reductions.argmax
    argmin = reductions.argmin
    mean = reductions.mean
    var = reductions.var
    std = reductions.std
    ptp = reductions.ptp
    cumsum = cumulative.cumsum
    cumprod = cumulative.cumprod

    # --- the rest -----------------------------------------------------------

    round = rounding.round_
    clip = rounding.clip
    dot = contraction.dot
