"""Whether sums of products turn pairs of one tensor's elements, and which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from poot.core.dtypes import DType
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.rope import Rope, RopeForm
from poot.lowering.passes.driver import Declined, Reason
from poot.lowering.passes.origins import Array, Base, Origin, shortened


@dataclass(frozen=True, slots=True)
class Product:
    """A product's two factors: where their elements come from, and as they stand."""

    traced: tuple[Origin, Origin]
    plain: tuple[Origin, Origin]
    sign: int


@dataclass(slots=True)
class Candidate:
    """A value that may be a rotary embedding, and the sums that it is made of."""

    root: ValueId
    origin: Origin
    # By number of the base among those of the origin.
    sums: dict[int, tuple[Product, Product]] = field(default_factory=dict)
    # The equations that the composite is to replace.
    inside: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring elements of a base, as an operand.

    `signs` are what those of first and of second elements of pairs are multiplied by;
    they differ only where each element has a number.
    """

    base: Base
    start: int
    size: int
    signs: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Found:
    """What is to stand for a candidate: a Rope of these, and casts of its result."""

    op: Rope
    operands: tuple[Piece, Piece, Piece]
    casts: tuple[DType, ...]


@dataclass(frozen=True, slots=True)
class _Term:
    """One product of some elements: the source's places, the sign, the other factor."""

    elements: Array
    places: Array
    signs: Array
    traced: Origin
    plain: Origin
    # The numbers of the elements in the origins.
    at: Array


@dataclass(frozen=True, slots=True)
class _Table:
    """A way to read cosines or sines, and the signs that it takes them with."""

    piece: Piece
    signs: Array


class Matcher:
    """Looks at one candidate, element by element of the last axis.

    `source` is the tensor that is turned.
    """

    def __init__(self, graph: Graph, candidate: Candidate, source: Base) -> None:
        self.graph = graph
        self.candidate = candidate
        self.source = source
        self.origin = candidate.origin.apply(np.ravel)
        turned = np.zeros(self.origin.which.shape, np.bool_)
        for number in candidate.sums:
            turned |= self.origin.which == number
        self.turned = np.flatnonzero(turned)
        self.rest = np.flatnonzero(~turned)
        self.count = len(self.turned)

    def match(self) -> Found | None:
        """What stands for the candidate; None if it is nothing like it."""
        sums = [self._terms(number) for number in self.candidate.sums]
        start = min(int(term.places.min()) for terms in sums for term in terms)
        straight: list[_Term] = []
        across: list[_Term] = []
        for terms in sums:
            own = self._own(terms, start)
            if own is None:
                return None
            straight.append(terms[own])
            across.append(terms[1 - own])
        self._require_sums_as_they_are()
        form = self._form(self._gather((t.elements, t.places) for t in across) - start)
        tables = self._tables(form, straight, across)
        casts = self._check_rest(start)
        source = Piece(self.source, start, len(self.origin.which))
        return Found(Rope(self.count, form), (source, *tables), casts)

    def _gather(self, parts: Iterable[tuple[Array, Array]]) -> Array:
        """The numbers of all turned elements, out of those of each sum."""
        whole = np.zeros(self.count, np.int64)
        for elements, values in parts:
            whole[elements] = values
        return whole

    # --- the source ---------------------------------------------------------

    def _terms(self, number: int) -> tuple[_Term, _Term]:
        """Both products of a sum, with the source's elements told from the others."""
        elements = np.flatnonzero(self.origin.which[self.turned] == number)
        first, second = self.candidate.sums[number]
        return self._term(first, elements), self._term(second, elements)

    def _term(self, product: Product, elements: Array) -> _Term:
        at = self.origin.at[self.turned[elements]]
        for own, factor in enumerate(product.traced):
            if self._is_source(factor, at):
                signs = product.sign * factor.sign.flat[at]
                other, plain = product.traced[1 - own], product.plain[1 - own]
                return _Term(elements, factor.at.flat[at], signs, other, plain, at)
        self._decline_source(product)

    def _is_source(self, origin: Origin, at: Array) -> bool:
        if self.source not in origin.bases:
            return False
        number = origin.bases.index(self.source)
        return bool(np.all(origin.which.flat[at] == number))

    def _decline_source(self, product: Product) -> NoReturn:
        bases = {base for factor in product.traced for base in factor.bases}
        names = ", ".join(sorted(f"%{base.value}" for base in bases))
        raise Declined(
            Reason.OTHER_SOURCE,
            f"a product takes elements of {names}, not all of %{self.source.value}",
        )

    def _own(self, terms: tuple[_Term, _Term], start: int) -> int | None:
        """Which product takes each element itself; None if both do."""
        elements = terms[0].elements
        fits = [bool(np.all(term.places - start == elements)) for term in terms]
        if all(fits) and all(abs(term.signs.sum()) == len(elements) for term in terms):
            return None
        if fits.count(True) == 1:
            return fits.index(True)
        taken = " and ".join(str(int(term.places[0]) - start) for term in terms)
        raise Declined(
            Reason.PARTNER,
            f"element {elements[0]} of {self.count} is made of elements {taken}",
        )

    def _require_sums_as_they_are(self) -> None:
        """Turning the signs of both products of a sum of 0 does not turn its sign."""
        minus = np.flatnonzero(self.origin.sign[self.turned] < 0)
        if len(minus):
            raise Declined(
                Reason.SIGNED_ZERO,
                f"element {minus[0]} of {self.count} is a sum with its sign turned; "
                "takes signs turned of products",
            )

    def _form(self, partners: Array) -> RopeForm:
        numbers = np.arange(self.count)
        half = self.count // 2
        if self.count % 2:
            raise Declined(
                Reason.PARTNER, f"{self.count} elements are turned; takes pairs"
            )
        if np.array_equal(partners, (numbers + half) % self.count):
            return RopeForm.HALF
        if np.array_equal(partners, numbers ^ 1):
            return RopeForm.INTERLEAVED
        raise Declined(
            Reason.PARTNER,
            f"element 0 of {self.count} is paired with element {partners[0]}, takes "
            f"{half} or 1",
        )

    # --- the other factors --------------------------------------------------

    def _tables(
        self, form: RopeForm, straight: list[_Term], across: list[_Term]
    ) -> tuple[Piece, Piece]:
        """Cosines and sines, both a number a pair, or both a number an element."""
        cosines = self._ways(form, straight)
        sines = self._ways(form, across)
        unfit: Declined | None = None
        for size in (self.count // 2, self.count):
            if size not in cosines or size not in sines:
                continue
            try:
                return (
                    self._signed("cos", form, straight, cosines[size]),
                    self._signed("sin", form, across, sines[size]),
                )
            except Declined as why:
                unfit = why
        if unfit is not None:
            raise unfit
        if cosines and sines:
            raise Declined(
                Reason.TABLES,
                f"cos is {_read(straight, cosines)}, sin {_read(across, sines)} for "
                f"{self.count} turned elements; takes as many of both",
            )
        name, terms = ("sin", across) if cosines else ("cos", straight)
        places = self._gather((t.elements, t.traced.at.flat[t.at]) for t in terms)
        raise Declined(
            Reason.TABLES,
            f"{name} is elements {', '.join(map(str, places[:8]))} of "
            f"{_bases(terms)} for {self.count} turned elements",
        )

    def _ways(self, form: RopeForm, terms: list[_Term]) -> dict[int, _Table]:
        """The ways to read one table, by how many numbers of it are read."""
        ways: dict[int, _Table] = {}
        signs = self._gather((t.elements, t.traced.sign.flat[t.at]) for t in terms)
        traced = self._way(form, [(t, t.traced) for t in terms])
        if traced is not None:
            ways[traced.size] = _Table(traced, signs)
        plain = self._way(form, [(t, t.plain) for t in terms])
        # What is negated inside is so in the numbers themselves.
        if plain is not None:
            ways.setdefault(plain.size, _Table(plain, np.ones_like(signs)))
        return ways

    def _way(self, form: RopeForm, parts: list[tuple[_Term, Origin]]) -> Piece | None:
        bases = {
            origin.bases[number]
            for term, origin in parts
            for number in set(origin.which.flat[term.at].tolist())
        }
        if len(bases) > 1:
            return None
        places = self._gather((t.elements, o.at.flat[t.at]) for t, o in parts)
        start, numbers = int(places.min()), np.arange(self.count)
        half = self.count // 2
        pairs = numbers // 2 if form is RopeForm.INTERLEAVED else numbers % half
        for size, wanted in ((half, pairs), (self.count, numbers)):
            if np.array_equal(places - start, wanted):
                return Piece(bases.pop(), start, size)
        return None

    # --- signs and the rest -------------------------------------------------

    def _signed(
        self, name: str, form: RopeForm, terms: list[_Term], table: _Table
    ) -> Piece:
        """The table with the signs that its numbers are to have in a Rope."""
        signs = self._gather((t.elements, t.signs) for t in terms) * table.signs
        numbers = np.arange(self.count)
        is_half = form is RopeForm.HALF
        leads = numbers < self.count // 2 if is_half else numbers % 2 == 0
        wanted = np.where(leads, -1, 1) if name == "sin" else np.ones_like(signs)
        of_pair = [(signs * wanted)[where] for where in (leads, ~leads)]
        if all(np.all(own == own[0]) for own in of_pair):
            first, second = (int(own[0]) for own in of_pair)
            if first == second or table.piece.size == self.count:
                return replace(table.piece, signs=(first, second))
            why = (
                f"its partner does not turn the sign too, and {_bases(terms)} holds "
                f"{table.piece.size} numbers for both"
            )
        else:
            why = "not all pairs do so; takes the same of all"
        element = int(np.flatnonzero(signs != wanted)[0])
        kind = "subtracts" if signs[element] < 0 else "adds"
        raise Declined(
            Reason.SIGN,
            f"element {element} of {self.count} {kind} its product with {name}, {why}",
        )

    def _check_rest(self, start: int) -> tuple[DType, ...]:
        """The casts of the result, if what is not turned is the source's rest."""
        casts = {self.origin.bases[number].casts for number in self.candidate.sums}
        if len(casts) > 1:
            raise Declined(Reason.REST, "the parts are cast to dtypes that differ")
        (after,) = casts
        dtype = self.graph.type(self.source.value).dtype
        passed = Base(
            self.source.value,
            self.source.lead,
            shortened(dtype, (*self.source.casts, *after)),
        )
        for element in self.rest:
            base = self.origin.base(int(element))
            place, sign = self.origin.at[element], self.origin.sign[element]
            if (base, place, sign) != (passed, start + element, 1):
                raise Declined(
                    Reason.REST,
                    f"element {element} is element {place} of %{base.value}",
                )
        if self.turned[-1] != self.count - 1:
            raise Declined(Reason.REST, f"element {self.turned[0]} is the first turned")
        return after


def _bases(terms: list[_Term]) -> str:
    """The values that the tables' numbers are of."""
    names = dict.fromkeys(
        f"%{base.value}" for term in terms for base in term.traced.bases
    )
    return ", ".join(names)


def _read(terms: list[_Term], ways: Mapping[int, _Table]) -> str:
    return f"{' or '.join(map(str, ways))} numbers of {_bases(terms)}"


def shared_inside(
    graph: Graph,
    candidate: Candidate,
    uses: Mapping[ValueId, Iterable[int]],
    kept: Iterable[ValueId],
) -> str | None:
    """Which value inside is needed outside too."""
    outputs = frozenset(kept)
    for index in sorted(candidate.inside):
        for out in graph.eqns[index].outs:
            if out == candidate.root:
                continue
            if out in outputs:
                return f"%{out} is an output"
            others = [
                user for user in uses.get(out, ()) if user not in candidate.inside
            ]
            if others:
                reader = graph.eqns[others[0]]
                return f"%{out} is read by {reader.op} to %{reader.outs[0]}"
    return None
