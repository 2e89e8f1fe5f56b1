"""Keys: where random numbers come from, in JAX's old and new style."""

from __future__ import annotations

import copy as copying
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from poot import lax
from poot import numpy as pnp
from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError, DTypeError, RangeError, ShapeError
from poot.core.interpreter import current
from poot.core.ops.random import Threefry2x32
from poot.core.ops.shape import Iota
from poot.interpreters.array import Array
from poot.interpreters.config import settings
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, is_value
from poot.interpreters.pytree import register_dataclass
from poot.interpreters.shaping import reshape
from poot.random._arguments import draw_shape

IMPLEMENTATION = "threefry2x32"
_WORD_MASK = 0xFFFFFFFF


# --- arrays of keys ---------------------------------------------------------


class KeyDType:
    """The dtype of arrays of keys; there is one implementation, and so one dtype."""

    itemsize = 8

    def __repr__(self) -> str:
        return "key<fry>"


KEY_DTYPE = KeyDType()


@register_dataclass
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyArray:
    """An array of keys: `key.shape` counts keys, not their words.

    It is a container of its two words (u32 arrays of its shape), so that it can be
    argument, result and carry of all transformations, along any axis.
    """

    first: Any
    second: Any
    # Its words are donated together, or stay.
    is_one_value: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.first.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> KeyDType:
        return KEY_DTYPE

    @property
    def itemsize(self) -> int:
        return KEY_DTYPE.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def _moved(self, move: Any) -> KeyArray:
        return KeyArray(move(self.first), move(self.second))

    def __getitem__(self, index: Any) -> KeyArray:
        return self._moved(lambda words: words[index])

    def reshape(self, *shape: Any) -> KeyArray:
        """Another shape, given as one tuple or size by size; one may be -1."""
        return self._moved(lambda words: words.reshape(*shape))

    def ravel(self) -> KeyArray:
        """The keys in one axis."""
        return self.reshape(-1)

    flatten = ravel

    def squeeze(self, axis: Any = None) -> KeyArray:
        """Without axes of size 1: those given, or all."""
        return self._moved(lambda words: words.squeeze(axis))

    def transpose(self, *axes: Any) -> KeyArray:
        """The axes in another order: in reverse, or as given."""
        return self._moved(lambda words: words.transpose(*axes))

    @property
    def T(self) -> KeyArray:
        """The axes in reverse order."""
        return self.transpose()

    def swapaxes(self, axis1: int, axis2: int) -> KeyArray:
        """Two axes exchanged."""
        return self._moved(lambda words: words.swapaxes(axis1, axis2))

    def take(self, indices: Any, axis: int | None = None, **options: Any) -> KeyArray:
        """The keys at indices along an axis, or of all in one; as `Array.take`."""
        return self._moved(lambda words: words.take(indices, axis, **options))

    @property
    def at(self) -> KeyUpdater:
        """Changed copies: `keys.at[index].set(key)`; and `.get()`."""
        return KeyUpdater(self)

    def __len__(self) -> int:
        return len(self.first)

    def __iter__(self) -> Iterator[KeyArray]:
        return map(KeyArray, self.first, self.second)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, KeyArray):
            return NotImplemented
        return (self.first == other.first) & (self.second == other.second)

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, KeyArray):
            return NotImplemented
        return (self.first != other.first) | (self.second != other.second)

    # Elements are compared by ==, so that keys cannot be keys of a dict.
    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: Any) -> bool:
        if not isinstance(key, KeyArray):
            raise DTypeError(
                f"`in` takes a key among keys, given a {type(key).__name__}; "
                "poot.random.key_data gives the keys' words"
            )
        return bool((self == key).any())

    def __bool__(self) -> NoReturn:
        raise DTypeError(
            "an array of keys is neither true nor false; poot.random.bits(key) gives a "
            "number"
        )

    # --- life and readiness -------------------------------------------------

    def block_until_ready(self) -> KeyArray:
        """Wait for the words."""
        return self._moved(lambda words: words.block_until_ready())

    def is_deleted(self) -> bool:
        """Whether its memory was given away, by .delete() or a donation."""
        return any(words.is_deleted() for words in (self.first, self.second))

    def delete(self) -> None:
        """Give the memory back now, not when the last reference goes."""
        self.first.delete()
        self.second.delete()

    @property
    def device(self) -> Any:
        """The device that poot runs on."""
        return self.first.device

    def devices(self) -> set[Any]:
        found: set[Any] = self.first.devices()
        return found

    def copy(self) -> KeyArray:
        """The same keys, which live on if these are donated or deleted."""
        return self._moved(copying.copy)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> KeyArray:
        return self.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise DTypeError(
            "an array of keys is no array of numbers; poot.random.key_data gives its "
            "words"
        )

    def __repr__(self) -> str:
        is_deleted = type(self.first) is Array and self.is_deleted()
        words = "deleted" if is_deleted else key_data(self)
        return f"KeyArray({self.shape}, {IMPLEMENTATION}, {words})"


@dataclass(frozen=True, slots=True)
class KeyUpdater:
    """`keys.at`: an index gives the place to read or change."""

    keys: KeyArray

    def __getitem__(self, index: Any) -> KeyPlace:
        return KeyPlace(self.keys, index)


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """`keys.at[index]`; options are those of `x.at[index]` of other arrays."""

    keys: KeyArray
    index: Any

    def get(self, **options: Any) -> KeyArray:
        """The keys there."""
        return self.keys._moved(lambda words: words.at[self.index].get(**options))

    def set(self, keys: KeyArray, **options: Any) -> KeyArray:
        """All keys, with others there; TypeError if these are no keys."""
        if not isinstance(keys, KeyArray):
            raise DTypeError(
                f"keys.at[...].set takes keys, given a {type(keys).__name__}; "
                "poot.random.wrap_key_data makes keys of words"
            )
        first, second = self.keys.first, self.keys.second
        return KeyArray(
            first.at[self.index].set(keys.first, **options),
            second.at[self.index].set(keys.second, **options),
        )


# --- keys from seeds and words ----------------------------------------------


def PRNGKey(seed: Any, *, impl: str | None = None) -> Value:
    """A key in the old style, u32[2], from an integer.

    TypeError for a seed that is no integer scalar, OverflowError for a Python int
    beyond 64 bits.
    """
    require_implementation("PRNGKey", impl)
    if isinstance(seed, int | np.integer):
        words: Value = current().lift(np.array(_number_words(seed), np.uint32))
        return words
    return key_data(_seeded("PRNGKey", seed))


def key(seed: Any, *, impl: str | None = None) -> KeyArray:
    """A key from an integer: an array of keys without axes.

    TypeError for a seed that is no integer scalar, OverflowError for a Python int
    beyond 64 bits.
    """
    require_implementation("key", impl)
    if isinstance(seed, int | np.integer):
        return _scalar_key(_number_words(seed))
    return _seeded("key", seed)


def _scalar_key(words: tuple[int, int]) -> KeyArray:
    lift = current().lift
    return KeyArray(*(lift(Scalar.of(word, dtypes.uint32)) for word in words))


def _number_words(seed: int | np.integer[Any]) -> tuple[int, int]:
    """The upper and the lower word of a number; without enable_x64 the upper is 0."""
    number = int(seed)
    if isinstance(seed, int) and not -(1 << 63) <= number < 1 << 63:
        raise RangeError(f"poot.random: the seed {seed} does not fit 64 bits")
    is_wide = settings().enable_x64 and np.dtype(type(seed)).itemsize == 8
    return (number >> 32 & _WORD_MASK if is_wide else 0), number & _WORD_MASK


def _seeded(where: str, seed: Any) -> KeyArray:
    value = as_value(seed, f"poot.random.{where}")
    if not value.type.dtype.is_integer:
        raise DTypeError(
            f"poot.random.{where}: the seed is {value.type.dtype}, takes an integer"
        )
    if value.shape:
        raise ArgumentError(
            f"poot.random.{where}: the seed has shape {value.shape}, takes a scalar; "
            "use poot.vmap for several"
        )
    lower = cast_to(value, dtypes.uint32).with_weak(False)
    if value.type.dtype.itemsize < 8:
        return KeyArray(current().lift(Scalar.of(0, dtypes.uint32)), lower)
    upper = cast_to(lax.shift_right_logical(value, 32), dtypes.uint32)
    return KeyArray(upper, lower)


def require_implementation(where: str, impl: str | None) -> None:
    """ArgumentError for another way to random bits than there is."""
    if impl not in (None, IMPLEMENTATION):
        raise ArgumentError(
            f"poot.random.{where}: impl is {impl!r}, takes {IMPLEMENTATION!r} only"
        )


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None) -> KeyArray:
    """Words (u32[…, 2]) as keys of shape […]; TypeError for other arrays."""
    require_implementation("wrap_key_data", impl)
    return _unpacked("wrap_key_data", key_bits_array)


def key_data(keys: Any) -> Value:
    """The words of keys of shape […] as u32[…, 2]; old-style keys are their own."""
    if isinstance(keys, KeyArray):
        return pnp.stack([keys.first, keys.second], axis=-1)
    return _as_words("key_data", keys)


def key_impl(keys: Any) -> str:
    """The name of the way from keys to random bits."""
    as_keys("key_impl", keys)
    return IMPLEMENTATION


def clone(key: Any) -> Any:
    """The same key."""
    as_keys("clone", key)
    return key


# --- keys as arguments ------------------------------------------------------


def _as_words(where: str, data: Any) -> Value:
    if not is_value(data) and not isinstance(data, np.ndarray):
        raise ArgumentError(
            f"poot.random.{where}: the key is a {type(data).__name__}; takes what "
            "poot.random.key or PRNGKey made"
        )
    value = as_value(data, f"poot.random.{where}")
    if value.type.dtype is not dtypes.uint32 or value.shape[-1:] != (2,):
        raise ArgumentError(
            f"poot.random.{where}: the key is {value.type}; words of keys are u32 with "
            "a last axis of 2"
        )
    return value


def _unpacked(where: str, data: Any) -> KeyArray:
    words = _as_words(where, data)
    return KeyArray(
        lax.index_in_dim(words, 0, -1, keepdims=False),
        lax.index_in_dim(words, 1, -1, keepdims=False),
    )


def as_keys(where: str, key: Any) -> KeyArray:
    """Keys of either style as an array of keys; ArgumentError for anything else."""
    return key if isinstance(key, KeyArray) else _unpacked(where, key)


def single_key(where: str, key: Any) -> KeyArray:
    """One key of either style; ShapeError for several."""
    keys = as_keys(where, key)
    if keys.shape:
        raise ShapeError(
            f"poot.random.{where}: given keys of shape {keys.shape}, takes one key; "
            "use poot.vmap for several"
        )
    return keys


# --- keys from keys ---------------------------------------------------------


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """`num` new keys (or keys of the shape `num`) that depend on one, in its style."""
    sizes = num if isinstance(num, Iterable) else (operator.index(num),)
    shape = draw_shape("split", sizes)
    keys = KeyArray(*random_words(single_key("split", key), shape))
    return keys if isinstance(key, KeyArray) else key_data(keys)


def fold_in(key: Any, data: Any) -> Any:
    """A new key that depends on a key and an integer, in the key's style.

    TypeError unless `data` is an integer scalar, OverflowError for a Python int
    beyond u32.
    """
    given = single_key("fold_in", key)
    folded = KeyArray(*_threefry(given, Scalar.of(0, dtypes.uint32), _word(data)))
    return folded if isinstance(key, KeyArray) else key_data(folded)


def _word(data: Any) -> Any:
    if isinstance(data, int) and not 0 <= data <= _WORD_MASK:
        raise RangeError(f"poot.random.fold_in: {data} does not fit u32")
    if isinstance(data, int | np.integer):
        return Scalar.of(int(data) & _WORD_MASK, dtypes.uint32)
    value = as_value(data, "poot.random.fold_in")
    if value.shape or not value.type.dtype.is_integer:
        raise ArgumentError(
            f"poot.random.fold_in: data is {value.type}, takes an integer scalar; use "
            "poot.vmap for several"
        )
    return cast_to(value, dtypes.uint32)


# --- from keys to bits ------------------------------------------------------


def _threefry(key: KeyArray, upper: Any, lower: Any) -> tuple[Value, Value]:
    first, second = Threefry2x32().bind(key.first, key.second, upper, lower)
    return first, second


def child(key: KeyArray, number: int) -> KeyArray:
    """The key that a split of `key` gives at a place."""
    zero, lower = (Scalar.of(word, dtypes.uint32) for word in (0, number))
    return KeyArray(*_threefry(key, zero, lower))


def random_words(key: KeyArray, shape: tuple[int, ...]) -> tuple[Value, Value]:
    """Two random words (u32) for each element of a shape, from its number in it.

    The axes of the key, if it has any, stand before the shape.
    """
    if math.prod(shape) > _WORD_MASK:
        raise ShapeError(
            f"poot.random: {shape} has {math.prod(shape)} elements; one draw gives "
            f"{_WORD_MASK} at most. Split the key"
        )
    spread = (*key.shape, *(1 for _ in shape))
    keys = KeyArray(reshape(key.first, spread), reshape(key.second, spread))
    number = _element_numbers(shape)
    return _threefry(keys, Scalar.of(0, dtypes.uint32), number)


def _element_numbers(shape: tuple[int, ...]) -> Any:
    """The number of each element (u32), row by row.

    A sum over the axes rather than one axis in another shape: rows stay rows, so that
    one kernel may draw and reduce them.
    """
    if not shape:
        return Scalar.of(0, dtypes.uint32)
    last = len(shape) - 1
    number: Value = Iota(dtypes.uint32, shape, last).bind()
    stride = 1
    for axis in reversed(range(last)):
        stride *= shape[axis + 1]
        if shape[axis] > 1:
            along: Value = Iota(dtypes.uint32, shape, axis).bind()
            number = lax.add(number, lax.mul(along, stride))
    return number
