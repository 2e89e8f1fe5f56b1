"""Control flow as loops over state: elements of xs and ys by the index, and words.

What a device runs are loops whose carries stand in one buffer each. Here the rest of
what a Scan, While or Cond means is written out as equations.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.indexing import DynamicSlice
from poot.core.ops.loops import INDEX, CountedLoop, FlagLoop, Switch
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Broadcast, Reshape
from poot.core.source import UNKNOWN, Source
from poot.core.types import ANONYMOUS, Identity, Storage, TensorType
from poot.lowering.plan.layout import ALIGNMENT


def opened(
    op: ControlOp, types: Sequence[TensorType], source: Source = UNKNOWN
) -> Graph:
    """The graph of loops and choices that means `op` on operands of some types.

    What it adds is made at `source`, as the op is.
    """
    match op:
        case Scan():
            return _opened_scan(op, types, source)
        case While():
            return _opened_while(op, types, source)
        case Cond():
            return _opened_cond(op, types, source)
    raise TypeError(f"{op} is opened already")


def _number(value: int) -> Scalar:
    return Scalar.of(value, dtypes.int32)


class _Maker(Builder):
    """A builder of the few equations that opening takes."""

    def __init__(self, source: Source) -> None:
        super().__init__(composites=True)
        self._source = source

    def emit(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        source: Source = UNKNOWN,
        identity: Identity = ANONYMOUS,
    ) -> tuple[ValueId, ...]:
        made_at = self._source if source is UNKNOWN else source
        return super().emit(op, operands, made_at, identity)

    def inputs(
        self, types: Sequence[TensorType], storage: Storage = Storage.DEVICE
    ) -> list[ValueId]:
        return [self.input(type, storage) for type in types]

    def same(self, operand: ValueId) -> ValueId:
        """What an operand holds, as a computed value."""
        (out,) = self.emit(Broadcast(self.type(operand).shape), (operand,))
        return out

    def copied(self, value: ValueId) -> ValueId:
        """The same elements, by an equation that fuses with those that make them."""
        truth = Scalar.of(True, dtypes.bool_)
        (out,) = self.emit(Select(), (truth, value, value))
        return out

    def filled(self, type: TensorType) -> ValueId:
        (out,) = self.emit(Broadcast(type.shape), (Scalar.of(0, type.dtype),))
        return out

    def plus_one(self, index: ValueId) -> ValueId:
        (out,) = self.emit(Binary(BinaryOp.ADD), (index, _number(1)))
        return out

    def reshaped(self, value: ValueId, shape: tuple[int, ...]) -> ValueId:
        (out,) = self.emit(Reshape(shape), (value,))
        return out

    def element(self, xs: ValueId, index: ValueId) -> ValueId:
        """Element `index` along the leading axis."""
        shape = self.type(xs).shape[1:]
        starts: tuple[Operand, ...] = (index, *(_number(0) for _ in shape))
        (row,) = self.emit(DynamicSlice((1, *shape)), (xs, *starts))
        return self.reshaped(row, shape)

    def with_element(self, ys: ValueId, index: ValueId, y: ValueId) -> ValueId:
        """The ys with `y` as element `index` along the leading axis."""
        shape = self.type(y).shape
        starts: tuple[Operand, ...] = (index, *(_number(0) for _ in shape))
        row = self.reshaped(y, (1, *shape))
        (out,) = self.emit(DynamicUpdateSlice(), (ys, row, *starts))
        return out

    def noted(self, word: ValueId, failed: ValueId, position: ValueId) -> ValueId:
        """The word of a loop after one more check: 1 + the index of the first failure.

        `position` is that of the check.
        """
        zero = _number(0)
        (is_first,) = self.emit(Compare(CompareOp.EQ), (word, zero))
        (fails,) = self.emit(Compare(CompareOp.NE), (failed, zero))
        (found,) = self.emit(Binary(BinaryOp.AND), (is_first, fails))
        (out,) = self.emit(Select(), (found, position, word))
        return out

    def words(self, known: dict[ValueId, ValueId], graph: Graph) -> list[ValueId]:
        """The words that the witnesses of an inlined graph gave."""
        return [known[witness.value] for witness in graph.witnesses]


# --- scans ------------------------------------------------------------------


def _opened_scan(op: Scan, types: Sequence[TensorType], source: Source) -> Graph:
    if not op.length:
        return _no_iterations(op, types, source)
    fixed = op.consts + op.carries
    outer = _Maker(source)
    operands = outer.inputs(types)
    consts, carries = operands[: op.consts], operands[op.consts : fixed]
    words = [_number(0)] * len(op.witnesses)
    xs = operands[fixed:]
    blocks = [x for x in xs if not _moves_along(outer.type(x))]
    rows = [x for x in xs if _moves_along(outer.type(x))]
    stacked = op.infer(*types)[op.carries : op.carries + _stacked_count(op)]
    fresh = sum(not _moves_along(type, stored=True) for type in stacked)
    loop = CountedLoop(
        _scan_body(op, types, source), op.length, len(rows), fresh, op.reverse
    )
    outs = outer.emit(loop, (*carries, *words, *consts, *blocks, *rows))
    started = op.carries + len(words)
    updated, given = (
        iter(outs[started : started + fresh]),
        iter(outs[started + fresh :]),
    )
    ys = [
        next(given if _moves_along(type, stored=True) else updated) for type in stacked
    ]
    for out in (*outs[: op.carries], *ys, *outs[op.carries : started]):
        outer.result(out)
    return outer.finish()


def _stacked_count(op: Scan) -> int:
    return len(op.body.results) - op.carries


def _moves_along(type: TensorType, *, stored: bool = False) -> bool:
    """Whether the rows of a tensor stand at addresses that kernels can take as such.

    Kernels store whole words, and load 16 bytes at a time.
    """
    row_bytes = type.size_bytes // type.shape[0]
    return row_bytes > 0 and row_bytes % (4 if stored else ALIGNMENT) == 0


def _scan_body(op: Scan, types: Sequence[TensorType], source: Source) -> Graph:
    """Index; carries, words and some ys as state; consts and some xs; rows of xs."""
    fixed = op.consts + op.carries
    inner = _Maker(source)
    index = inner.input(INDEX)
    carries = inner.inputs(types[op.consts : fixed], Storage.STATE)
    words = inner.inputs([INDEX] * len(op.witnesses), Storage.STATE)
    stacked = op.infer(*types)[op.carries : op.carries + _stacked_count(op)]
    ys = [
        None if _moves_along(type, stored=True) else inner.input(type, Storage.STATE)
        for type in stacked
    ]
    consts = inner.inputs(types[: op.consts])
    blocks = [
        None if _moves_along(type) else inner.input(type) for type in types[fixed:]
    ]
    elements = [
        inner.input(TensorType(type.shape[1:], type.dtype))
        if block is None
        else inner.element(block, index)
        for block, type in zip(blocks, types[fixed:], strict=True)
    ]
    given = dict(zip(op.body.inputs, [*consts, *carries, *elements], strict=True))
    # Rows of what stands elsewhere already are copies: here, before carries change.
    copies = {
        value: inner.copied(given[value])
        for value in op.body.results[op.carries :]
        if value in given
    }
    known = inner.inline(op.body, list(given.values()))
    made = [known[value] for value in op.body.results]
    for carry, following in zip(carries, made[: op.carries], strict=True):
        inner.state_next(carry, following)
    for stack, value in zip(ys, op.body.results[op.carries :], strict=True):
        y = copies.get(value, known[value])
        if stack is None:
            inner.result(inner.copied(y) if y in made[: op.carries] else y)
        else:
            inner.state_next(stack, inner.with_element(stack, index, y))
    if words:
        position = inner.plus_one(index)
        for word, failed in zip(words, inner.words(known, op.body), strict=True):
            inner.state_next(word, inner.noted(word, failed, position))
    return inner.finish()


def _no_iterations(op: Scan, types: Sequence[TensorType], source: Source) -> Graph:
    outer = _Maker(source)
    operands = outer.inputs(types)
    for carry in operands[op.consts : op.consts + op.carries]:
        outer.result(outer.same(carry))
    for type in op.infer(*types)[op.carries :]:
        outer.result(outer.filled(type))
    return outer.finish()


# --- other loops and choices ------------------------------------------------


def _opened_while(op: While, types: Sequence[TensorType], source: Source) -> Graph:
    """The condition is run before the loop, and again at the end of each iteration."""
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    outer = _Maker(source)
    operands = outer.inputs(types)
    carries = operands[fixed:]
    known = outer.inline(op.condition, [*operands[:first], *carries])
    flag = _flag(outer, known, op)
    counted: list[Operand] = []
    if op.witnesses:
        zero = outer.filled(INDEX)
        one = outer.plus_one(zero)
        asked = [
            outer.noted(zero, failed, one)
            for failed in outer.words(known, op.condition)
        ]
        unasked = [_number(0)] * len(op.body.witnesses)
        counted = [_number(0), *asked, *unasked]
    loop = FlagLoop(_while_body(op, types, source))
    outs = outer.emit(loop, (flag, *counted, *carries, *operands[:fixed]))
    started = 1 + len(counted)
    for out in (*outs[started:], *outs[2:started]):
        outer.result(out)
    return outer.finish()


def _flag(maker: _Maker, known: dict[ValueId, ValueId], op: While) -> ValueId:
    (holds,) = op.condition.results
    (flag,) = maker.emit(Cast(dtypes.int32), (known[holds],))
    return flag


def _while_body(op: While, types: Sequence[TensorType], source: Source) -> Graph:
    """Flag, number of the iteration and words if there are any, carries, consts."""
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    inner = _Maker(source)
    flag = inner.input(INDEX, Storage.STATE)
    count = len(op.witnesses)
    counted = inner.inputs([INDEX] * (1 + count if count else 0), Storage.STATE)
    carries = inner.inputs(types[fixed:], Storage.STATE)
    consts = inner.inputs(types[:fixed])
    done = inner.inline(op.body, [*consts[first:], *carries])
    made = [done[value] for value in op.body.results]
    asked = inner.inline(op.condition, [*consts[:first], *made])
    for carry, following in zip(carries, made, strict=True):
        inner.state_next(carry, following)
    if count:
        iteration, *words = counted
        following = inner.plus_one(iteration)
        position = inner.plus_one(following)
        failed = inner.words(asked, op.condition)
        for word, now in zip(words, failed, strict=False):
            inner.state_next(word, inner.noted(word, now, position))
        for word, now in zip(
            words[len(failed) :], inner.words(done, op.body), strict=True
        ):
            inner.state_next(word, inner.noted(word, now, following))
        inner.state_next(iteration, following)
    inner.state_next(flag, _flag(inner, asked, op))
    return inner.finish()


def _opened_cond(op: Cond, types: Sequence[TensorType], source: Source) -> Graph:
    outer = _Maker(source)
    index, *operands = outer.inputs(types)
    last = _number(len(op.branches) - 1)
    (clamped,) = outer.emit(Clamp(), (_number(0), index, last))
    branches = tuple(_branch(op, number, source) for number in range(len(op.branches)))
    for out in outer.emit(Switch(branches), (clamped, *operands)):
        outer.result(out)
    return outer.finish()


def _branch(op: Cond, number: int, source: Source) -> Graph:
    """The results of a branch, then the words of all branches."""
    mine = op.branches[number]
    inner = _Maker(source)
    known = inner.inline(mine, inner.inputs(mine.input_types))
    for value in mine.results:
        inner.result(known[value])
    for other, branch in enumerate(op.branches):
        for witness in branch.witnesses:
            word = known[witness.value] if other == number else inner.filled(INDEX)
            inner.result(word)
    return inner.finish()
