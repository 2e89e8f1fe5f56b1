"""What the axes of the operands of attention are, and views that put them in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Cast
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.shape import Broadcast, Reshape, Transpose
from poot.lowering.passes.attention_axes import Atom, Atoms, Axes, NoAxes, Split
from poot.lowering.passes.attention_facts import Facts

# What an axis of an operand is that is no part of the products.
FEATURE: Atom = (-1, 0)
# Axes that a repeat makes, beside those of what it repeats.
_REPEATS = -2
_VIEWS = (Reshape, Transpose)
_REPEATING = (Broadcast, *_VIEWS)
_NARROW = (dtypes.float16, dtypes.bfloat16)
# The sizes of the atoms of each axis.
Sizes = list[list[int]]


@dataclass(frozen=True, slots=True)
class Sides:
    """A contraction: for each operand its batch, contracted and free axes."""

    batch: tuple[tuple[int, ...], tuple[int, ...]]
    contracted: tuple[tuple[int, ...], tuple[int, ...]]
    free: tuple[tuple[int, ...], tuple[int, ...]]


def sides_of(graph: Graph, eqn: Eqn) -> Sides:
    op = eqn.op
    ndims = [graph.type(operand).ndim for operand in eqn.inputs]
    if isinstance(op, MatMul):
        batch = tuple(range(ndims[0] - 2))
        last, before = (ndims[0] - 1,), (ndims[0] - 2,)
        return Sides((batch, batch), (last, before), (before, last))
    assert isinstance(op, DotGeneral)
    return Sides(
        (op.lhs_batch, op.rhs_batch),
        (op.lhs_contracting, op.rhs_contracting),
        (op.lhs_free(ndims[0]), op.rhs_free(ndims[1])),
    )


class _Repeats(Atoms):
    """Atoms of a root, and of axes along which it is repeated."""

    __slots__ = ("repeats",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.repeats: list[int] = []

    def size(self, atom: Atom) -> int:
        if atom[0] <= _REPEATS:
            return self.repeats[_REPEATS - atom[0]]
        return super().size(atom)

    def split(self, split: Split) -> None:
        if split.atom[0] <= _REPEATS:
            raise NoAxes
        super().split(split)

    def repeated(self, size: int) -> tuple[Atom, ...]:
        self.repeats.append(size)
        return ((_REPEATS - len(self.repeats) + 1, 0),)


@dataclass(slots=True)
class Source:
    """An operand of a contraction, seen as repeats of what it is made of.

    Each axis of the operand consists of atoms: those of `root`, numbered by its axes,
    and those along which it is repeated.
    """

    root: ValueId
    atoms: _Repeats
    axes: Axes

    def is_repeat(self, atom: Atom) -> bool:
        return atom[0] <= _REPEATS


def plain_source(
    facts: Facts, value: ValueId, sizes: Sizes | None, casts: bool
) -> Source:
    """An operand before it was transposed, with the `sizes` of its atoms, if known.

    With `casts` also before it was cast to a wider dtype, which changes no product.
    """
    return _seen(facts, value, sizes, _moves(facts, value, _VIEWS, casts))


def source_of(facts: Facts, value: ValueId, sizes: Sizes | None, casts: bool) -> Source:
    """The same as repeats of what it is made of, if it is."""
    return _seen(facts, value, sizes, _moves(facts, value, _REPEATING, casts))


def _seen(
    facts: Facts, value: ValueId, sizes: Sizes | None, moves: list[int]
) -> Source:
    """Before the moves, but for those of which there is nothing to gain."""
    graph = facts.graph
    count = 0
    for number, index in enumerate(moves):
        eqn = graph.eqns[index]
        is_repeat = graph.type(eqn.inputs[0]).size < graph.type(eqn.out).size
        is_first = count == number and isinstance(eqn.op, Transpose)
        if is_repeat or is_first or isinstance(eqn.op, Cast):
            count = number + 1
    return _through(graph, value, moves[:count], sizes)


def _moves(
    facts: Facts, value: ValueId, ops: tuple[type[Op], ...], casts: bool
) -> list[int]:
    """The moves of these ops that made a value, last first."""
    found: list[int] = []
    while True:
        eqn = facts.eqn(value)
        if eqn is None:
            return found
        is_cast = casts and _widens(facts.graph, eqn)
        if not is_cast and not isinstance(eqn.op, ops):
            return found
        (source,) = eqn.inputs
        if isinstance(source, Scalar):
            return found
        found.append(facts.makers[value])
        value = source


def _widens(graph: Graph, eqn: Eqn) -> bool:
    """Whether it is a cast that changes no number, to what sums are made in."""
    if not isinstance(eqn.op, Cast):
        return False
    given, made = graph.type(eqn.inputs[0]).dtype, graph.type(eqn.out).dtype
    return given in _NARROW and made is dtypes.float32


def _through(
    graph: Graph, value: ValueId, moves: list[int], sizes: Sizes | None
) -> Source:
    root = value
    if moves:
        (source,) = graph.eqns[moves[-1]].inputs
        assert not isinstance(source, Scalar)
        root = source
    atoms = _Repeats(graph.type(root).shape)
    if sizes is not None:
        atoms.sizes = [list(each) for each in sizes]
    while True:
        atoms.repeats = []
        try:
            return Source(root, atoms, _walk(graph, atoms, moves))
        except Split as split:
            atoms.split(split)


def _walk(graph: Graph, atoms: _Repeats, moves: list[int]) -> Axes:
    axes = atoms.axes
    for index in reversed(moves):
        eqn = graph.eqns[index]
        given, made = graph.type(eqn.inputs[0]).shape, graph.type(eqn.out).shape
        if isinstance(eqn.op, Broadcast):
            missing = len(made) - len(given)
            grown = [
                atoms.repeated(size) if size != old else group
                for size, old, group in zip(made[missing:], given, axes, strict=True)
            ]
            axes = (*(_leading(atoms, size) for size in made[:missing]), *grown)
        else:
            axes = atoms.through(eqn.op, axes, made)
    return axes


def _leading(atoms: _Repeats, size: int) -> tuple[Atom, ...]:
    return atoms.repeated(size) if size > 1 else ()


def paired(
    atoms: Atoms, whole: Sequence[Atom], source: Source, own: Sequence[Atom]
) -> dict[Atom, Atom]:
    """The atoms of an operand's axis by those of the products' axis that it is.

    Split, of `atoms`, or of the source's, where the one holds parts of the other.
    """
    found: dict[Atom, Atom] = {}
    left = list(own)
    for atom in whole:
        if not left:
            raise NoAxes
        mine = left.pop(0)
        size, part = atoms.size(atom), source.atoms.size(mine)
        if size == part:
            found[mine] = atom
        elif size % part == 0:
            raise Split(atom, part)
        elif part % size == 0:
            raise SourceSplit(source, Split(mine, size))
        else:
            raise NoAxes
    if left:
        raise NoAxes
    return found


class SourceSplit(Exception):
    """An atom of a source is to be two."""

    def __init__(self, source: Source, split: Split) -> None:
        super().__init__(source, split)
        self.source, self.split = source, split


@dataclass(frozen=True, slots=True)
class Placed:
    """A value whose axes, cut up, are these atoms of the products (or a feature)."""

    value: ValueId
    flat: tuple[tuple[Atom, int], ...]


def placed(source: Source, names: Mapping[Atom, Atom]) -> Placed:
    """A root by the atoms of the products; `names` says which are which."""
    flat = tuple(
        (names[atom], source.atoms.size(atom))
        for group in source.atoms.axes
        for atom in group
        if atom in names
    )
    if len(flat) != sum(len(group) for group in source.atoms.axes):
        raise NoAxes
    return Placed(source.root, flat)


def bring(
    edit: GraphEdit, at: int, given: Placed, wanted: Sequence[tuple[Atom, int]]
) -> ValueId:
    """Emit what turns the axes of an operand into the wanted ones; views all."""
    value = given.value
    present = [name for name, _ in given.flat]
    value = _reshaped(edit, at, value, tuple(size for _, size in given.flat))
    order = [name for name, _ in wanted if name in present]
    perm = tuple(present.index(name) for name in order)
    if perm != tuple(range(len(perm))):
        (value,) = edit.emit(Transpose(perm), (value,), at)
    shape = tuple(size if name in present else 1 for name, size in wanted)
    value = _reshaped(edit, at, value, shape)
    full = tuple(size for _, size in wanted)
    if full != shape:
        (value,) = edit.emit(Broadcast(full), (value,), at)
    return value


def _reshaped(
    edit: GraphEdit, at: int, value: ValueId, shape: tuple[int, ...]
) -> ValueId:
    if edit.type(value).shape == shape:
        return value
    return edit.emit(Reshape(shape), (value,), at)[0]
