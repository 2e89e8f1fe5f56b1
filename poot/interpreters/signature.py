"""What of a call decides whether a trace of the function can be used again."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from poot.core import dtypes
from poot.core.errors import ArgumentError, DTypeError, PootError, ShapeError
from poot.core.types import TensorType
from poot.interpreters.array import Array
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.config import Settings, settings
from poot.interpreters.donation import Groups
from poot.interpreters.promotion import canonical, default_float, default_int
from poot.interpreters.pytree import TreeDef, flatten, leaf_paths
from poot.interpreters.slot_kinds import (
    GuardedKind,
    Kind,
    SlotKind,
    declared_kind,
    scalar_kind,
)
from poot.interpreters.value import AbstractValue


@dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """Shape and dtype of an argument, to trace a function without its numbers."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtypes.as_dtype(self.dtype).numpy)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


# What a leaf is to a trace: an array on the device, or numbers in a slot.
LeafKind = Aval | SlotKind | GuardedKind


def leaf_kind(leaf: Any) -> Aval | SlotKind | None:
    """What a leaf is to a trace; None if it can be no argument."""
    if type(leaf) is Array:
        return leaf.aval
    if isinstance(leaf, bool):
        return scalar_kind(dtypes.bool_, False)
    # NumPy's f64 scalars are Python floats too.
    if isinstance(leaf, np.generic):
        return scalar_kind(canonical(dtypes.as_dtype(leaf.dtype)), False)
    if isinstance(leaf, float):
        return scalar_kind(default_float(), True)
    if isinstance(leaf, int):
        return scalar_kind(default_int(), True)
    return _array_kind(leaf)


def _array_kind(leaf: Any) -> Aval | None:
    if isinstance(leaf, AbstractValue):
        return leaf.aval
    if isinstance(leaf, np.ndarray):
        dtype = canonical(dtypes.as_dtype(leaf.dtype))
        return aval_of(TensorType(leaf.shape, dtype))
    if isinstance(leaf, ShapeDtypeStruct):
        dtype = dtypes.as_dtype(leaf.dtype)
        return aval_of(TensorType(leaf.shape, dtype), leaf.weak_type)
    return None


def abstract(leaf: Any, where: str) -> Aval:
    """What a leaf is to a trace that has no slots; a ShapeDtypeStruct will do."""
    kind = leaf_kind(leaf)
    if kind is None:
        raise ArgumentError(
            f"{where} takes arrays, numbers and ShapeDtypeStructs, and containers of "
            f"them; given a {type(leaf).__name__}"
        )
    return aval_in(kind)


def aval_in(kind: LeafKind) -> Aval:
    """The Aval of a leaf's kind."""
    return kind if isinstance(kind, Aval) else kind.aval


class Signature(NamedTuple):
    """The key of a trace: two calls with equal ones share it."""

    settings: Settings
    tree: TreeDef
    kinds: tuple[LeafKind, ...]
    # (position or name, type, value): 1, 1.0 and True are equal, but not the same.
    statics: tuple[tuple[int | str, type, Any], ...]
    # The number of positional arguments, static ones included.
    positional: int


class Call(NamedTuple):
    """One call taken apart."""

    signature: Signature
    leaves: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Which parameters of a function are static or donated, by place and by name."""

    names: tuple[str, ...]
    static_numbers: frozenset[int]
    static_names: frozenset[str]
    donated_numbers: frozenset[int]
    donated_names: frozenset[str]
    # The slots that are declared: the path of each, taken apart, and its kind.
    slots: tuple[tuple[tuple[str, ...], Kind], ...] = ()

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        static_argnums: Any,
        static_argnames: Any,
        donate_argnums: Any,
        donate_argnames: Any,
        slots: Mapping[str, Kind] | None = None,
    ) -> Parameters:
        """Complete places by names and names by places, from the signature."""
        found = _parameters(function)
        names = _positional_names(found)
        static = _resolved(found, static_argnums, static_argnames)
        donated = _resolved(found, donate_argnums, donate_argnames)
        both = (static[0] & donated[0]) | (static[1] & donated[1])
        if both:
            raise ArgumentError(
                f"jit: {', '.join(map(str, sorted(both, key=str)))} cannot be static "
                "and donated"
            )
        declared = _declared(found, {} if slots is None else slots, static[1])
        return cls(names, *static, *donated, declared)

    def describe(self, place: int | str) -> str:
        """What an argument is called: its parameter's name, or `args[i]`."""
        if isinstance(place, str):
            return place
        if place < len(self.names):
            return self.names[place]
        return f"args[{place}]"

    def split(
        self, function_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[int | str, Any], ...]]:
        """The positional and named arguments that are traced, and the static ones."""
        if not self.static_numbers and not self.static_names:
            return args, dict(kwargs), ()
        numbers = self.static_numbers
        static: list[tuple[int | str, Any]] = [
            (i, arg) for i, arg in enumerate(args) if i in numbers
        ]
        static += [(k, kwargs[k]) for k in sorted(kwargs) if k in self.static_names]
        for place, value in static:
            _require_hashable(function_name, self.describe(place), value)
        traced = tuple(arg for i, arg in enumerate(args) if i not in numbers)
        named = {k: v for k, v in kwargs.items() if k not in self.static_names}
        return traced, named, tuple(static)

    def traced_places(self, positional: int) -> list[int]:
        """The places of the traced positional arguments, in order."""
        return [i for i in range(positional) if i not in self.static_numbers]

    def paths(self, signature: Signature) -> list[str]:
        """How a user would write each leaf: `params['w']`."""
        located = _located(self, signature.tree, signature.positional)
        return [accessor.codify(argument) for argument, accessor in located]

    def donated_leaves(self, signature: Signature) -> Groups:
        """The numbers of the leaves that belong to donated arguments, by value."""
        if not self.donated_numbers and not self.donated_names:
            return ()
        places = self.traced_places(signature.positional)
        found: dict[tuple[Any, ...], list[int]] = {}
        for number, accessor in enumerate(leaf_paths(signature.tree)):
            which, first = accessor[0].entry, accessor[1].entry
            donated = (
                places[first] in self.donated_numbers
                if which == 0
                else first in self.donated_names
            )
            if donated:
                found.setdefault(_place_of_value(accessor), []).append(number)
        return list(map(tuple, found.values()))


def _place_of_value(accessor: Any) -> tuple[Any, ...]:
    """The way to a leaf, or to what has it as a part: the class says `is_one_value`."""
    entries = tuple(entry.entry for entry in accessor)
    for depth, entry in enumerate(accessor):
        if getattr(entry.type, "is_one_value", False):
            return entries[:depth]
    return entries


def take_apart(
    parameters: Parameters,
    function_name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Call:
    """The signature of a call and its leaves; ArgumentError for a foreign leaf."""
    traced, named, static = parameters.split(function_name, args, kwargs)
    try:
        leaves, tree, kinds = _leaves(parameters, traced, named, len(args))
    except (DTypeError, ShapeError):
        # An array of strings, say, or of floats for a slot.
        leaves, tree, kinds = *flatten((traced, named)), (None,)
    statics = tuple([(place, type(value), value) for place, value in static])
    signature = Signature(settings(), tree, kinds, statics, len(args))
    if None in kinds:
        raise _refusal(function_name, parameters, signature, leaves)
    return Call(signature, leaves)


def _leaves(
    parameters: Parameters,
    traced: tuple[Any, ...],
    named: dict[str, Any],
    positional: int,
) -> tuple[Sequence[Any], TreeDef, tuple[Any, ...]]:
    kinds: tuple[Any, ...]
    if not parameters.slots:
        kinds = tuple(map(leaf_kind, traced))
        if not named and None not in kinds:
            return traced, _flat_tree(len(traced)), kinds
        leaves, tree = flatten((traced, named))
        return leaves, tree, tuple(map(leaf_kind, leaves))
    leaves, tree = flatten((traced, named))
    declared = declared_leaves(parameters, tree, positional)
    kinds = tuple(map(kind_of, leaves, declared))
    return traced if tree == _flat_tree(len(traced)) else leaves, tree, kinds


def kind_of(leaf: Any, declared: Kind | None) -> LeafKind | None:
    """What a leaf is to a trace, by what is declared of it; None if it can be none."""
    kind = leaf_kind(leaf)
    if declared is None or kind is None:
        return kind
    on_device = isinstance(leaf, AbstractValue)
    return declared_kind(kind, declared, on_device=on_device)


def flat_kinds(parameters: Parameters, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The kinds of positional arguments that are leaves themselves, none static."""
    if not parameters.slots:
        return tuple(map(leaf_kind, args))
    declared = declared_leaves(parameters, _flat_tree(len(args)), len(args))
    return tuple(map(kind_of, args, declared))


@functools.lru_cache(maxsize=1024)
def declared_leaves(
    parameters: Parameters, tree: TreeDef, positional: int
) -> tuple[Kind | None, ...]:
    """What is declared of each leaf: the longest path that leads to it, or above it."""
    names = [
        (argument, *map(_entry_name, accessor))
        for argument, accessor in _located(parameters, tree, positional)
    ]
    declared = dict(parameters.slots)
    found = []
    for name in names:
        leading = [path for path in declared if name[: len(path)] == path]
        longest = max(leading, key=len, default=None)
        found.append(None if longest is None else declared[longest])
    for path in declared:
        inside = [name for name in names if name[0] == path[0]]
        if inside and not any(name[: len(path)] == path for name in inside):
            raise ArgumentError(
                f"jit: slots declares {'/'.join(path)}, but {path[0]} has "
                f"{', '.join('/'.join(name) for name in inside)}"
            )
    return tuple(found)


def _entry_name(entry: Any) -> str:
    """How a path names a step down a tree: a key, a field or a number."""
    field = getattr(entry, "field", None) or getattr(entry, "name", None)
    return str(entry.entry if field is None else field)


def _located(
    parameters: Parameters, tree: TreeDef, positional: int
) -> Iterator[tuple[str, Any]]:
    """For each leaf the argument that it stands in, and the way from there."""
    places = parameters.traced_places(positional)
    for accessor in leaf_paths(tree):
        which, first = accessor[0].entry, accessor[1].entry
        place: int | str = places[first] if which == 0 else first
        yield parameters.describe(place), accessor[2:]


def _refusal(
    function_name: str,
    parameters: Parameters,
    signature: Signature,
    leaves: Sequence[Any],
) -> PootError:
    """The error for the first leaf that can be no argument."""
    paths = parameters.paths(signature)
    declared = declared_leaves(parameters, signature.tree, signature.positional)
    for leaf, path, slot in zip(leaves, paths, declared, strict=True):
        try:
            kind = kind_of(leaf, slot)
        except (DTypeError, ShapeError) as error:
            return type(error)(f"`{function_name}`: argument {path}: {error}")
        if kind is None:
            return ArgumentError(
                f"`{function_name}`: argument {path} is a {type(leaf).__name__}; takes "
                "arrays and numbers, and containers of them. Mark it in static_argnums "
                "or static_argnames, or register its class in poot.tree"
            )
    raise AssertionError


@functools.cache
def _flat_tree(count: int) -> TreeDef:
    """The tree of positional arguments that are leaves themselves."""
    return flatten(((0,) * count, {}))[1]


def put_together(
    statics: Iterable[tuple[int | str, Any]], positional: int, tree: Any
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the function, from the traced ones and the static ones."""
    traced, named = tree
    remaining = iter(traced)
    fixed = dict(statics)
    args = [fixed[i] if i in fixed else next(remaining) for i in range(positional)]
    names = {k: v for k, v in fixed.items() if isinstance(k, str)}
    return args, {**named, **names}


def _require_hashable(function_name: str, name: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"`{function_name}`: the static argument {name} is a "
            f"{type(value).__name__}, which has no hash; static arguments are hashable "
            "(a tuple rather than a list, say)"
        ) from None


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some callables of C have no signature; their arguments go by number.
        return None


def _resolved(
    parameters: list[inspect.Parameter] | None, numbers: Any, chosen: Any
) -> tuple[frozenset[int], frozenset[str]]:
    """Places and names of the same parameters, given as places, names or both."""
    names = _positional_names(parameters)
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers or ())
    texts = (chosen,) if isinstance(chosen, str) else tuple(chosen or ())
    places = {n + len(names) if n < 0 else n for n in given}
    _require_parameters(parameters, places, texts)
    places |= {names.index(text) for text in texts if text in names}
    named = set(texts) | {names[p] for p in places if p < len(names)}
    return frozenset(places), frozenset(named)


def _declared(
    parameters: list[inspect.Parameter] | None,
    slots: Mapping[str, Kind],
    static: frozenset[str],
) -> tuple[tuple[tuple[str, ...], Kind], ...]:
    """The declared slots by the steps of their paths: an argument, then into it."""
    if not isinstance(slots, Mapping):
        raise ArgumentError(
            f"jit: slots is a {type(slots).__name__}; takes a mapping of the names of "
            'arguments to kinds, {"pos": poot.slots.Pos(0, 15)} say'
        )
    declared = []
    for text, kind in slots.items():
        if not isinstance(text, str):
            raise ArgumentError(
                f"jit: slots[{text!r}] names no argument: that is a "
                f"{type(text).__name__}; takes the argument's name"
            )
        if not isinstance(kind, Kind):
            raise ArgumentError(
                f"jit: slots[{text!r}] is a {type(kind).__name__}; takes a kind with "
                "its range, poot.slots.Pos(0, 15) say"
            )
        path = tuple(text.split("/"))
        if not path[0].endswith("]"):
            _require_parameters(parameters, set(), path[:1])
        if path[0] in static:
            raise ArgumentError(f"jit: {path[0]} cannot be static and a slot")
        declared.append((path, kind))
    return tuple(declared)


def _positional_names(parameters: list[inspect.Parameter] | None) -> tuple[str, ...]:
    return tuple(p.name for p in parameters or () if p.kind in _POSITIONAL)


def _require_parameters(
    parameters: list[inspect.Parameter] | None, places: set[int], texts: tuple[str, ...]
) -> None:
    """ArgumentError for a place or name that no argument can have."""
    if parameters is None:
        return
    kinds = {p.kind for p in parameters}
    count = len(_positional_names(parameters))
    for place in places:
        more = inspect.Parameter.VAR_POSITIONAL in kinds
        if place < 0 or (place >= count and not more):
            raise ArgumentError(
                f"jit: there is no argument number {place}; the function takes {count} "
                "by position"
            )
    known = {p.name for p in parameters}
    for text in texts:
        if text not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise ArgumentError(
                f"jit: the function has no argument {text!r}; it has "
                f"{', '.join(sorted(known))}"
            )


def describe_kinds(kinds: Iterable[LeafKind]) -> str:
    """The kinds of leaves for messages."""
    return f"({', '.join(map(str, kinds))})"
