"""Products and sums that turn pairs of elements become Rope, however they are spelled.

A candidate is a sum of two products of elements of one tensor, or two such sums put
together. What counts is which element each product takes, not by which moves.
"""

from __future__ import annotations

import math

from poot.core.dtypes import Scalar, int32
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.rope import RopeForm
from poot.core.ops.shape import Iota, Reshape, Slice
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import (
    Declined,
    Log,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    place_of,
)
from poot.lowering.passes.origins import MOST_ELEMENTS, Base, Origins, is_move
from poot.lowering.passes.rope_crossed import crossed
from poot.lowering.passes.rope_match import (
    Candidate,
    Found,
    Matcher,
    Piece,
    Product,
    shared_inside,
)

FORM_ROPE = Rewrite(
    "form_rope",
    "products and their sums round as before; a b = b a, a + b = b + a and "
    "(-a) b = -(a b) in every bit, but for the bits of a NaN; all floats",
)
_SUMS = (Binary(BinaryOp.ADD), Binary(BinaryOp.SUB))
# Moves behind a sum among which the whole head is looked for.
_MOST_BEHIND = 12


class _Walk:
    """One walk over the sums of a graph."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.origins = Origins(graph)
        self.makers = self.origins.makers
        self.uses = graph.uses()
        self.kept = {output.value for output in graph.outputs}
        self.edit = graph.edit()
        self.removed: set[int] = set()
        # What the new equations read.
        self.read: set[ValueId] = set()
        self.firsts: dict[tuple[int, RopeForm], ValueId] = {}

    def run(self) -> Graph:
        for index in range(len(self.graph.eqns)):
            if index not in self.removed and self._is_sum(index):
                self._try(index)
        if not self.removed:
            return self.graph
        self._drop_unread()
        for index in self.removed:
            self.edit.remove(index)
        return self.edit.commit()

    # --- candidates ---------------------------------------------------------

    def _is_sum(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        if eqn.op not in _SUMS:
            return False
        type = self.graph.type(eqn.out)
        products = [self._product(operand) for operand in eqn.inputs]
        return type.dtype.is_float and all(
            product is not None and self.graph.type(product.out) == type
            for product in products
        )

    def _product(self, operand: Operand) -> Eqn | None:
        """The product of two tensors that makes an operand, if one does."""
        maker = None if isinstance(operand, Scalar) else self.makers.get(operand)
        eqn = None if maker is None else self.graph.eqns[maker]
        if eqn is None or eqn.op != Binary(BinaryOp.MUL):
            return None
        return None if any(isinstance(o, Scalar) for o in eqn.inputs) else eqn

    def _try(self, index: int) -> None:
        """Look for the whole head behind a sum, the furthest value first."""
        declined: tuple[int, Declined] | None = None
        for root in reversed(self._behind(self.graph.eqns[index].out)):
            candidate = self._candidate(root)
            if candidate is None:
                continue
            try:
                found = self._match(candidate)
            except Declined as error:
                # What holds more of the sums tells more, and then what holds no more.
                if declined is None or len(candidate.sums) >= declined[0]:
                    declined = len(candidate.sums), error
                continue
            if found is not None:
                self._put(candidate, found)
                self.log.fire(FORM_ROPE, place_of(self.graph, self.makers[root]))
                return
        why: Declined | Refusal | None
        why = self._crossed(index) if declined is None else declined[1]
        if why is not None:
            place = place_of(self.graph, index)
            self.log.decline(FORM_ROPE, place, why.reason, why.detail)

    def _crossed(self, index: int) -> Refusal | None:
        eqn = self.graph.eqns[index]
        products = [self._product(operand) for operand in eqn.inputs]
        known = [product for product in products if product is not None]
        return crossed(self.graph, self.origins, eqn, known)

    def _behind(self, value: ValueId) -> list[ValueId]:
        """The value, and what moves make of it, nearest first."""
        found = [value]
        for each in found:
            for user in self.uses.get(each, ()):
                eqn = self.graph.eqns[user]
                fits = is_move(self.graph, eqn) and user not in self.removed
                if fits and eqn.out not in found and len(found) < _MOST_BEHIND:
                    found.append(eqn.out)
        return found

    def _candidate(self, root: ValueId) -> Candidate | None:
        shape = self.graph.type(root).shape
        if not shape or not 2 <= shape[-1] <= MOST_ELEMENTS or 0 in shape:
            return None
        candidate = Candidate(root, self.origins.of(root, len(shape) - 1))
        held = set(candidate.origin.which.ravel().tolist())
        for number in sorted(held):
            base = candidate.origin.bases[number]
            maker = self.makers.get(base.value)
            lead = self.graph.type(base.value).shape[: base.lead]
            if maker is None or lead != shape[:-1] or not self._is_sum(maker):
                continue
            candidate.sums[number] = self._products(maker, base.lead, candidate)
        if candidate.sums:
            self._add_path(candidate)
            return candidate
        return None

    def _products(
        self, index: int, lead: int, candidate: Candidate
    ) -> tuple[Product, Product]:
        """The two products of a sum, which are inside then."""
        eqn = self.graph.eqns[index]
        shape = self.graph.type(eqn.out).shape
        origins = self.origins
        candidate.inside.add(index)
        found = []
        for operand, sign in zip(eqn.inputs, (1, -1), strict=True):
            product = self._product(operand)
            assert product is not None
            candidate.inside.add(self.makers[product.out])
            a, b = product.inputs
            traced = origins.aligned(a, lead, shape), origins.aligned(b, lead, shape)
            plain = origins.itself(a, lead, shape), origins.itself(b, lead, shape)
            is_minus = eqn.op == Binary(BinaryOp.SUB)
            found.append(Product(traced, plain, sign if is_minus else 1))
        return found[0], found[1]

    def _add_path(self, candidate: Candidate) -> None:
        """Add the moves between the sums and the root to what is inside."""
        bases = candidate.origin.bases
        sums = {bases[number].value for number in candidate.sums}
        lead = len(self.graph.type(candidate.root).shape) - 1
        stack = [candidate.root]
        while stack:
            value = stack.pop()
            maker = self.makers.get(value)
            if maker is None or maker in candidate.inside:
                continue
            origin = self.origins.of(value, lead)
            if sums.isdisjoint(base.value for base in origin.bases):
                continue
            candidate.inside.add(maker)
            inputs = self.graph.eqns[maker].inputs
            stack += [operand for operand in inputs if not isinstance(operand, Scalar)]

    # --- conditions ---------------------------------------------------------

    def _match(self, candidate: Candidate) -> Found | None:
        """What the candidate is; None if it is nothing like it."""
        source = self._source(candidate)
        if source is None:
            return None
        found = Matcher(self.graph, candidate, source).match()
        if found is not None:
            shared = shared_inside(self.graph, candidate, self.uses, self.kept)
            if shared is not None:
                raise Declined(Reason.SHARED, shared)
        return found

    def _source(self, candidate: Candidate) -> Base | None:
        """The tensor that all products share."""
        lead = self.graph.type(candidate.root).shape[:-1]
        pairs = list(candidate.sums.values())
        groups = [
            {base for factor in product.traced for base in factor.bases}
            for products in pairs
            for product in products
        ]
        common = [
            base
            for base in sorted(groups[0], key=lambda base: base.value)
            if all(base in group for group in groups)
            and self.graph.type(base.value).shape[: base.lead] == lead
        ]
        if common:
            return max(common, key=lambda base: self.graph.type(base.value).size)
        halves = [groups[i] | groups[i + 1] for i in range(0, len(groups), 2)]
        if len(halves) > 1 and all(half == halves[0] for half in halves):
            names = ", ".join(f"%{v}" for v in sorted(b.value for b in halves[0]))
            detail = f"the products are of {names}, none of which is in all of them"
            raise Declined(Reason.OTHER_SOURCE, detail)
        return None

    # --- changes ------------------------------------------------------------

    def _put(self, candidate: Candidate, found: Found) -> None:
        index = self.makers[candidate.root]
        source = self.graph.source(index)
        x, *tables = found.operands
        form = found.op.form
        operands = (
            self._operand(x, index),
            *(self._table(piece, form, index) for piece in tables),
        )
        (value,) = self.edit.emit(found.op, operands, index, source)
        for to in found.casts:
            (value,) = self.edit.emit(Cast(to), (value,), index, source)
        self.edit.replace(candidate.root, value)
        self.removed |= candidate.inside

    def _operand(self, piece: Piece, index: int) -> ValueId:
        base, edit, source = piece.base, self.edit, self.graph.source(index)
        value = base.value
        self.read.add(value)
        shape = self.graph.type(value).shape
        lead, size = shape[: base.lead], math.prod(shape[base.lead :])
        if base.lead != len(shape) - 1:
            (value,) = edit.emit(Reshape((*lead, size)), (value,), index, source)
        if (piece.start, piece.size) != (0, size):
            part = Slice(base.lead, piece.start, piece.start + piece.size)
            (value,) = edit.emit(part, (value,), index, source)
        for to in base.casts:
            (value,) = edit.emit(Cast(to), (value,), index, source)
        return value

    def _table(self, piece: Piece, form: RopeForm, index: int) -> ValueId:
        """Cosines or sines with their signs turned where a Rope takes the others."""
        value = self._operand(piece, index)
        if piece.signs == (1, 1):
            return value
        source = self.graph.source(index)
        (minus,) = self.edit.emit(Unary(UnaryOp.NEG), (value,), index, source)
        if piece.signs == (-1, -1):
            return minus
        pair = (minus, value) if piece.signs == (-1, 1) else (value, minus)
        operands = (self._firsts(piece.size, form), *pair)
        return self.edit.emit(Select(), operands, index, source)[0]

    def _firsts(self, size: int, form: RopeForm) -> ValueId:
        """Which elements are the first of a pair; once for all heads of the graph."""
        if (size, form) not in self.firsts:
            (place,) = self.edit.emit(Iota(int32, (size,), 0), (), 0)
            end = size // 2
            if form is RopeForm.INTERLEAVED:
                odd, end = Scalar(int32, 1), 1
                (place,) = self.edit.emit(Binary(BinaryOp.AND), (place, odd), 0)
            less = Compare(CompareOp.LT), (place, Scalar(int32, end))
            (self.firsts[size, form],) = self.edit.emit(*less, 0)
        return self.firsts[size, form]

    def _drop_unread(self) -> None:
        """Remove the moves, too, that only removed equations read."""
        needed = self.read | self.kept
        stack = sorted(self.removed)
        while stack:
            for operand in self.graph.eqns[stack.pop()].inputs:
                if isinstance(operand, Scalar) or operand in needed:
                    continue
                maker = self.makers.get(operand)
                if maker is None or maker in self.removed:
                    continue
                if all(user in self.removed for user in self.uses[operand]):
                    self.removed.add(maker)
                    stack.append(maker)


def _rope(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, log).run()


rope = Pass("rope", (FORM_ROPE,), _rope)
