"""What each axis is of two contractions with a softmax between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.ops.elementwise import Cast
from poot.lowering.passes.attention_axes import (
    Atom,
    Atoms,
    Axes,
    NoAxes,
    Split,
    aligned,
)
from poot.lowering.passes.attention_facts import Facts
from poot.lowering.passes.attention_roles import (
    FEATURE,
    Placed,
    Sides,
    Sizes,
    Source,
    SourceSplit,
    paired,
    placed,
    plain_source,
    sides_of,
    source_of,
)
from poot.lowering.passes.attention_score import Slice, path_axes
from poot.lowering.passes.attention_softmax import Softmax
from poot.lowering.passes.driver import Declined, Reason

_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
# So often axes are cut up, at most.
_MOST_SPLITS = 24


@dataclass(frozen=True, slots=True)
class Roles:
    """The atoms of the products by what they are, and the operands by them."""

    batch: tuple[Atom, ...]
    rows: tuple[Atom, ...]
    key: Atom
    features: int
    values: int
    q: Placed
    k: Placed
    v: Placed
    # Of the last equation's result; FEATURE is the axis of the values.
    result: Axes


class Match:
    """A softmax whose scores come of a contraction; Declined if axes do not fit."""

    def __init__(self, facts: Facts, softmax: Softmax, cut: Slice) -> None:
        self.facts, self.graph = facts, facts.graph
        self.softmax, self.cut = softmax, cut
        self.product = self.graph.eqns[facts.makers[cut.products]]
        self.mean = self.graph.eqns[softmax.contraction]
        self.atoms = Atoms(facts.graph.type(cut.products).shape)
        self.axes: dict[ValueId, Axes] = {}
        self._sizes: dict[str, Sizes] = {}
        self._sees: Callable[..., Source] = source_of
        self._casts = True
        self._sources: dict[str, Source] = {}
        try:
            self._check_dtypes()
            self.roles = self._find()
        except NoAxes:
            raise self._other_axes() from None

    def _find(self) -> Roles:
        """The roles, with operands as near to what they are made of as can be."""
        for sees, casts in itertools.product((source_of, plain_source), (True, False)):
            try:
                return self._seen_by(sees, casts)
            except NoAxes:
                continue
        raise NoAxes

    def _seen_by(self, sees: Callable[..., Source], casts: bool) -> Roles:
        self._sees, self._casts, self._sizes = sees, casts, {}
        for _ in range(_MOST_SPLITS):
            try:
                return self._roles()
            except Split as split:
                self.atoms.split(split)
            except SourceSplit as other:
                self._split_source(other)
        raise NoAxes

    def _other_axes(self) -> Declined:
        named, scores = self.facts.named, self.softmax.scores
        return Declined(
            Reason.OTHER_AXES,
            f"products {named(self.cut.products)}, scores {named(scores)} with keys "
            f"along axis {self.softmax.axis}, means {named(self.mean.out)}",
        )

    def _split_source(self, other: SourceSplit) -> None:
        for name, source in self._sources.items():
            if source is other.source:
                source.atoms.split(other.split)
                self._sizes[name] = source.atoms.sizes

    # --- roles --------------------------------------------------------------

    def _roles(self) -> Roles:
        atoms, softmax, type = self.atoms, self.softmax, self.graph.type
        # What is taken off may repeat the scores along further axes.
        if type(softmax.shares).shape != type(softmax.scores).shape:
            raise NoAxes
        self.axes = path_axes(self.graph, self.cut, atoms)
        scores = self.axes[softmax.scores]
        if len(scores[softmax.axis]) != 1:
            raise NoAxes
        (key,) = scores[softmax.axis]
        for peak in softmax.peaks:
            self._require_aligned(softmax.largest, peak.moves, scores)
        weights = self._moved(softmax.weights.moves, scores)
        sides = sides_of(self.graph, self.product)
        k_side = self._side_of(key, sides)
        q, q_names = self._query(sides, 1 - k_side)
        k, k_names = self._keys(sides, k_side, key)
        if self.graph.type(q.root).dtype is not self.graph.type(k.root).dtype:
            raise NoAxes
        v, v_names, result = self._values(weights, key)
        seen = {
            name
            for source, names in ((k, k_names), (v, v_names))
            for atom, name in names.items()
            if not source.is_repeat(atom)
        }
        others = [atom for group in atoms.axes for atom in group if atom != key]
        features = type(self.product.inputs[0]).shape[sides.contracted[0][0]]
        if not features:
            # Products of nothing are zeros; no kernel reads operands of no elements.
            raise NoAxes
        other = sides_of(self.graph, self.mean).free[1 - softmax.side][0]
        return Roles(
            tuple(atom for atom in others if atom in seen),
            tuple(atom for atom in others if atom not in seen),
            key,
            features,
            self.graph.type(self.mean.inputs[1 - softmax.side]).shape[other],
            placed(q, q_names),
            placed(k, k_names),
            placed(v, v_names),
            self._result(result, scores),
        )

    def _side_of(self, key: Atom, sides: Sides) -> int:
        """The operand of the products whose free axis, a lone one, is the keys'."""
        first = len(sides.batch[0])
        second = first + len(sides.free[0])
        side = 0 if key[0] < second else 1
        if key[0] < first or len(sides.free[side]) != 1:
            raise NoAxes
        if len(sides.contracted[0]) != 1 or len(self.atoms.sizes[key[0]]) != 1:
            raise NoAxes
        return side

    def _query(self, sides: Sides, side: int) -> tuple[Source, Mapping[Atom, Atom]]:
        value = _value(self.product.inputs[side])
        q = plain_source(self.facts, value, self._sizes.get("q"), self._casts)
        self._sources["q"] = q
        first = len(sides.batch[0]) + (len(sides.free[0]) if side else 0)
        pairs = zip(
            (
                *range(len(sides.batch[side])),
                *range(first, first + len(sides.free[side])),
            ),
            (*sides.batch[side], *sides.free[side]),
            strict=True,
        )
        names = dict.fromkeys(q.axes[sides.contracted[side][0]], FEATURE)
        products = self.atoms.axes
        for axis, own in pairs:
            names |= paired(self.atoms, products[axis], q, q.axes[own])
        return q, names

    def _keys(
        self, sides: Sides, side: int, key: Atom
    ) -> tuple[Source, Mapping[Atom, Atom]]:
        value = _value(self.product.inputs[side])
        k = self._sees(self.facts, value, self._sizes.get("k"), self._casts)
        self._sources["k"] = k
        names = self._lone(k, sides.contracted[side], FEATURE)
        names |= self._lone(k, sides.free[side], key)
        for axis, own in enumerate(sides.batch[side]):
            names |= paired(self.atoms, self.atoms.axes[axis], k, k.axes[own])
        return k, names

    def _values(
        self, weights: Axes, key: Atom
    ) -> tuple[Source, Mapping[Atom, Atom], Axes]:
        side, other = self.softmax.side, 1 - self.softmax.side
        sides = sides_of(self.graph, self.mean)
        if len(sides.free[other]) != 1 or len(sides.contracted[0]) != 1:
            raise NoAxes
        if weights[sides.contracted[side][0]] != (key,):
            raise NoAxes
        value = _value(self.mean.inputs[other])
        v = self._sees(self.facts, value, self._sizes.get("v"), True)
        self._sources["v"] = v
        names = self._lone(v, sides.free[other], FEATURE)
        self.atoms.others[FEATURE] = self.graph.type(value).shape[sides.free[other][0]]
        names |= self._lone(v, sides.contracted[other], key)
        for mine, own in zip(sides.batch[side], sides.batch[other], strict=True):
            names |= paired(self.atoms, weights[mine], v, v.axes[own])
        free: list[Axes] = [(), ()]
        free[side] = tuple(weights[axis] for axis in sides.free[side])
        free[other] = ((FEATURE,),)
        batch = tuple(weights[axis] for axis in sides.batch[side])
        return v, names, (*batch, *free[0], *free[1])

    def _lone(
        self, source: Source, axes: Sequence[int], name: Atom
    ) -> dict[Atom, Atom]:
        """The name of an axis of keys or features, which is whole and not repeated."""
        (axis,) = axes
        own = source.axes[axis]
        if len(own) > 1 or any(source.is_repeat(atom) for atom in own):
            raise NoAxes
        return dict.fromkeys(own, name)

    # --- moves --------------------------------------------------------------

    def _moved(self, moves: Sequence[int], axes: Axes) -> Axes:
        for index in moves:
            eqn = self.graph.eqns[index]
            axes = self.atoms.through(eqn.op, axes, self.graph.type(eqn.out).shape)
        return axes

    def _reduced(self, eqn: Eqn, scores: Axes) -> Axes:
        axis = self.softmax.axis
        keepdim = self.graph.type(eqn.out).ndim == len(scores)
        middle: Axes = ((),) if keepdim else ()
        return (*scores[:axis], *middle, *scores[axis + 1 :])

    def _require_aligned(self, eqn: Eqn, moves: Sequence[int], whole: Axes) -> None:
        """What a reduction of the scores gives must meet the rows that it is of."""
        scores = self.axes[self.softmax.scores]
        if not aligned(self._moved(moves, self._reduced(eqn, scores)), whole):
            raise NoAxes

    def _result(self, axes: Axes, scores: Axes) -> Axes:
        """The axes of the last result; the sum must meet what it divides."""
        softmax = self.softmax
        if softmax.late is None:
            self._require_aligned(softmax.sum, softmax.total.moves, scores)
            return axes
        axes = self._moved(softmax.late[0], axes)
        self._require_aligned(softmax.sum, softmax.total.moves, axes)
        return axes

    # --- dtypes -------------------------------------------------------------

    def _check_dtypes(self) -> None:
        softmax = self.softmax
        values = (
            *map(_value, self.product.inputs),
            self.cut.products,
            softmax.scores,
            softmax.shares,
            *map(_value, self.mean.inputs),
            self.mean.out,
            self.graph.eqns[softmax.last].out,
        )
        for value in values:
            if self.graph.type(value).dtype not in _DTYPES:
                raise Declined(
                    Reason.OTHER_DTYPE,
                    f"{self.facts.named(value)}; takes f16, bf16 and f32",
                )
        moves = (*softmax.weights.moves, *(softmax.late[0] if softmax.late else ()))
        casts = [i for i in moves if isinstance(self.graph.eqns[i].op, Cast)]
        if len(casts) > 1 or (softmax.late and casts and casts[0] in softmax.late[0]):
            raise Declined(
                Reason.OTHER_DTYPE,
                f"a cast to %{self.graph.eqns[casts[-1]].out} rounds once more",
            )


def _value(operand: Operand) -> ValueId:
    if isinstance(operand, Scalar):
        raise NoAxes
    return operand
