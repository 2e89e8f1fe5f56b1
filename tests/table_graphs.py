"""Random graphs of every primitive and dtype that the op table has."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import strategies as st

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Kind, Scalar
from poot.core.equation import ValueId
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.shape import Broadcast, Pad, Reshape, Slice
from poot.core.types import Storage, TensorType
from tests.op_row import Case, Domain, OpRow
from tests.op_table import ROWS
from tests.random_graphs import DrawnGraph

# Composites are made by passes only.
DRAWN_ROWS = tuple(row for row in ROWS if not row.key.op.composite)
# Where operands of one shape are as good as those of any other.
_OF_ANY_SHAPE = (Select, Clamp, Cast)
_INPUT_SHAPES = ((), (1,), (7,), (3, 5), (2, 1, 9), (64,), (4, 16), (0, 3))
_LARGEST = 2048


class TableGraph:
    """A graph that grows by rows of the op table, applied to the values that there are.

    Operands are brought into the row's domain and to whole numbers, so that results are
    the same bits in any order of work. What may be off by ulps is a result at once.
    """

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.builder = Builder()
        self.values: list[ValueId] = []
        self.inexact: dict[ValueId, float] = {}
        self.equations = 0
        for _ in range(choose.randint(1, 3)):
            self._input(Storage.DEVICE)
        self._state = self._input(Storage.STATE)

    def make(self, equations: int) -> DrawnGraph:
        choose = self.choose
        for _ in range(choose.randint(1, equations)):
            row = choose.choice(DRAWN_ROWS)
            self.apply(row, choose.choice(row.dtypes))
        return self.finish()

    def finish(self) -> DrawnGraph:
        """The graph, with some of its values as results."""
        choose = self.choose
        exact = choose.sample(self.values[-6:], min(3, len(self.values[-6:])))
        results = [*exact, *self.inexact]
        for value in results:
            self.builder.result(value)
        self.builder.export("extra", choose.choice(self.values))
        following = self._brought(choose.choice(self.values), self._type(self._state))
        self.builder.state_next(self._state, following)
        limits = tuple(self.inexact.get(value, 0.0) for value in results)
        return DrawnGraph(self.builder.finish(), limits)

    def _type(self, value: ValueId) -> TensorType:
        return self.builder.type(value)

    def _emit(self, op: Op, *operands: ValueId | Scalar) -> ValueId:
        (out,) = self.builder.emit(op, operands)
        self.equations += 1
        return out

    def _input(self, storage: Storage) -> ValueId:
        dtype = self.choose.choice((dtypes.float32, *dtypes.ALL))
        shape = self.choose.choice(_INPUT_SHAPES)
        value = self.builder.input(TensorType(shape, dtype), storage)
        self.values.append(value)
        return value

    # --- one application ----------------------------------------------------

    def apply(self, row: OpRow, dtype: DType) -> None:
        """Grow by one application of a row to operands of a dtype."""
        case = self.choose.choice(row.cases(dtype))
        if row.special or row.key.op in _OF_ANY_SHAPE:
            case = self._reshaped(case)
        operands = [
            self._brought(
                self._pick_for(type), type, row.domains[min(n, len(row.domains) - 1)]
            )
            for n, type in enumerate(case.types)
        ]
        self.equations += 1
        for out in self.builder.emit(case.op, tuple(operands)):
            limit = row.ulps.get(self._type(out).dtype.name, 0)
            if limit:
                self.inexact[out] = limit
            else:
                self.values.append(out)

    def _pick(self) -> ValueId:
        """A recent value more often than an old one."""
        recent = self.choose.random() < 0.7
        return self.choose.choice(self.values[-4:] if recent else self.values)

    def _pick_for(self, type: TensorType) -> ValueId:
        """What an operand of a type is made of."""
        return self._pick()

    def _reshaped(self, case: Case) -> Case:
        """The same op on operands as large as some value, so that chains may fuse."""
        shape = self._type(self._pick()).shape
        if math.prod(shape) > _LARGEST:
            return case
        types = [replace(type, shape=shape) for type in case.types]
        for number in range(1, len(types)):
            if self.choose.random() < 0.2:
                types[number] = replace(types[number], shape=shape[1:])
        return Case(case.op, tuple(types))

    # --- bringing a value to a type -----------------------------------------

    def _brought(
        self, value: ValueId, type: TensorType, domain: Domain = (-100.0, 100.0)
    ) -> ValueId:
        """Some value of a type, made of the elements of another one."""
        value = self._shaped(value, type.shape)
        if type.dtype.kind is Kind.STORAGE or self._type(value).dtype.kind is not (
            type.dtype.kind
        ):
            value = self._cast(value, dtypes.float32)
        if type.dtype.is_bool:
            return self._cast(value, type.dtype)
        if type.dtype.kind is Kind.STORAGE:
            return self._cast(self._tamed(value, domain), type.dtype)
        return self._tamed(self._cast(value, type.dtype), domain)

    def _cast(self, value: ValueId, to: DType) -> ValueId:
        if self._type(value).dtype is to:
            return value
        return self._emit(Cast(to), value)

    def _tamed(self, value: ValueId, domain: Domain) -> ValueId:
        """Whole numbers within a domain, none of them -0: sums make +0 of it or not."""
        dtype = self._type(value).dtype
        if dtype.is_float:
            value = self._emit(Unary(UnaryOp.ROUND), value)
            value = self._emit(Binary(BinaryOp.ADD), value, Scalar.of(0, dtype))
        low, high = math.ceil(domain[0]), math.floor(domain[1])
        if not dtype.is_float and not dtype.is_signed:
            low = max(low, 0)
        bounds = Scalar.of(low, dtype), Scalar.of(high, dtype)
        return self._emit(Clamp(), bounds[0], value, bounds[1])

    def _shaped(self, value: ValueId, shape: tuple[int, ...]) -> ValueId:
        """The first elements, over and over, in another shape."""
        given, dtype = self._type(value).shape, self._type(value).dtype
        have, need = math.prod(given), math.prod(shape)
        if given == shape:
            return value
        value = self._regrouped(value, (have,))
        if not have and need:
            value = self._emit(Pad(((0, 1, 0),)), value, Scalar.of(1, dtype))
            have = 1
        if have < need:
            times = -(-need // have)
            value = self._emit(Broadcast((times, have)), value)
            value = self._regrouped(value, (times * have,))
        if self._type(value).size > need:
            value = self._emit(Slice(0, 0, need), value)
        return self._regrouped(value, shape)

    def _regrouped(self, value: ValueId, shape: tuple[int, ...]) -> ValueId:
        if self._type(value).shape == shape:
            return value
        return self._emit(Reshape(shape), value)


@st.composite
def table_graphs(draw: st.DrawFn, equations: int = 12) -> DrawnGraph:
    """Random graphs whose every choice is Hypothesis', so that failures shrink."""
    return TableGraph(draw(st.randoms(use_true_random=False))).make(equations)
