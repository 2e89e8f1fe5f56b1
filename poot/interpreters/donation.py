"""Which results take the memory of donated arrays, and what is said where none can."""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass

from poot.core.errors import DonationError
from poot.core.source import user_source
from poot.core.types import TensorType

# The numbers of donated leaves; those of one value, as a key is one, stand together.
Groups = Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Fit:
    """What becomes of the donated leaves, by their numbers."""

    # The leaves that the call deletes; the others stay the caller's.
    donated: tuple[int, ...]
    # Of these, the ones that a result of their very type can stand in, and which.
    takers: Mapping[int, int]
    # The leaves that stay since no result is left with as many elements.
    unused: tuple[int, ...]


def fit(
    groups: Groups,
    types: Mapping[int, TensorType],
    results: Sequence[TensorType],
    passed_on: Collection[int] = (),
) -> Fit:
    """Match donated leaves with results, as JAX does: by type, then by size.

    A leaf that has the bytes of a result of another type is deleted too. One that has
    only its number of elements stays, and nothing is said of it. Those `passed_on` are
    results themselves. Of a group all are donated or none.
    """
    free = dict(enumerate(results))
    ranks = dict.fromkeys(passed_on, _SAME_TYPE)
    takers = {}
    for rank, kind in enumerate(_KINDS):
        alike: dict[Hashable, deque[int]] = defaultdict(deque)
        for taker, type in free.items():
            alike[kind(type)].append(taker)
        for leaf in (n for group in groups for n in group if n not in ranks):
            if found := alike[kind(types[leaf])]:
                takers[leaf] = found.popleft()
                del free[takers[leaf]]
                ranks[leaf] = rank
    donated: list[int] = []
    unused: list[int] = []
    for group in groups:
        worst = max(ranks.get(leaf, _NONE) for leaf in group)
        if worst <= _SAME_BYTES:
            donated += group
        elif worst == _NONE:
            unused += group
    own = {n: takers[n] for n in donated if n in takers and ranks[n] == _SAME_TYPE}
    return Fit(tuple(donated), own, tuple(unused))


# In what a leaf and its taker are alike, from the best on.
_KINDS: tuple[Callable[[TensorType], Hashable], ...] = (
    lambda type: type,
    lambda type: (type.size, type.size_bytes),
    lambda type: type.size,
)
_SAME_TYPE, _SAME_BYTES, _NONE = 0, 1, len(_KINDS)


def warn_unused(name: str, unused: Iterable[str]) -> None:
    """Say that donated arrays stay as they are, at the line of the call."""
    source = user_source()
    warnings.warn_explicit(
        f"`{name}`: no result is left with as many elements as {', '.join(unused)}, so "
        "that it is not donated: the array stays as it is",
        UserWarning,
        source.file,
        source.line,
    )


def given_twice(name: str, path: str, other: str) -> DonationError:
    """The error for a donated array that a call of `name` is given elsewhere too."""
    return DonationError(
        f"`{name}`: the array donated as {path} is given as {other} too; a donated "
        "array is used once"
    )
