"""Makes the Region of a body: which steps it takes, and where its operands stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import CapabilityError
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import DenseRowGather
from poot.core.ops.elementwise import (
    Binary,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Unary,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope, RopeForm
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import TensorType
from poot.lowering.kernels.region import (
    Action,
    Apply,
    Border,
    Count,
    Dim,
    Edge,
    Given,
    Join,
    Load,
    Mirror,
    Part,
    Permute,
    PutTogether,
    Ref,
    Region,
    Regroup,
    Repeat,
    Rotate,
    Source,
    Step,
    Stretch,
    Take,
    TakeApart,
    TakeWindow,
    Target,
    Window,
    Word,
)
from poot.lowering.kernels.shapes import axis_runs, common_groups, walked_as_one
from poot.lowering.plan.layout import ALIGNMENT, Layout, View
from poot.lowering.plan.state import ELEMENTWISE
from poot.lowering.program import INDIRECT_SPACES, BufferRange

_CALCULATES = (
    *(Unary, Binary, Compare, Cast, Clamp, Iota),
    *(Rope, Threefry2x32, DenseRowGather),
)
# Small floats change form when they are loaded; where they only move, they need not.
_BITS = {
    dtypes.float16: dtypes.uint16,
    dtypes.bfloat16: dtypes.uint16,
}


def needed_values(body: Graph) -> frozenset[ValueId]:
    """The values that the results are computed from; empty operands are not read."""
    needed = set(body.results)
    for eqn in reversed(body.eqns):
        if needed.intersection(eqn.outs):
            used = _operands_read(body, eqn)
            needed.update(o for o in used if not isinstance(o, Scalar))
    return frozenset(needed)


def _operands_read(body: Graph, eqn: Eqn) -> Sequence[Operand]:
    match eqn.op:
        case Pad() if body.type(eqn.inputs[0]).size == 0:
            return eqn.inputs[1:]
        case Concat():
            return [o for o in eqn.inputs if body.type(o).size]
        case Gather() | GeneralGather() | DenseRowGather():
            return eqn.inputs if body.type(eqn.inputs[0]).size else ()
        case DynamicSlice(sizes):
            moving = _moving_axes(sizes, body.type(eqn.inputs[0]).shape)
            return [eqn.inputs[0], *(eqn.inputs[1 + axis] for axis in moving)]
    return eqn.inputs


def _moving_axes(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The axes along which a block of `sizes` does not span the whole shape."""
    pairs = zip(sizes, shape, strict=True)
    return [axis for axis, (size, whole) in enumerate(pairs) if size != whole]


@dataclass(frozen=True, slots=True)
class Held:
    """An operand that the kernel around the region holds: `Given` in the steps."""

    type: TensorType


RegionOperand = View | Scalar | Held


@dataclass(slots=True)
class Described:
    """A Region with what a launch of its kernel needs."""

    region: Region
    # The metadata words.
    words: tuple[int, ...]
    # The buffers of the pointers, and what is read of them.
    buffers: tuple[BufferRange, ...]
    reads: tuple[BufferRange, ...]
    # What gives further sizes their words.
    dims: Dims


@dataclass(slots=True)
class Dims:
    """Sizes: numbers in the kernel, or metadata words if it is to serve all shapes."""

    lanes: int
    generic: bool
    words: list[int] = field(default_factory=list)
    _known: dict[int, Word] = field(default_factory=dict)

    def __call__(self, size: int) -> Dim:
        if not self.generic or size in (0, 1):
            return size
        known = self._known.get(size)
        if known is None:
            multiple = 1 if size % self.lanes else self.lanes
            known = self._known[size] = Word(len(self.words), multiple)
            self.words.append(size)
        return known

    def of(self, shape: Sequence[int]) -> tuple[Dim, ...]:
        return tuple(self(size) for size in shape)


def describe(
    body: Graph,
    operands: Sequence[RegionOperand],
    outs: Sequence[View],
    lanes: int,
    generic: bool = False,
) -> Described:
    """The Region that computes the results of `body`, which are of one shape.

    Results beyond `outs` are scalars, which the kernel asks for as numbers.
    """
    return _Describer(body, operands, Dims(lanes, generic)).describe(outs)


def describe_values(
    body: Graph, operands: Sequence[RegionOperand], dims: Dims
) -> tuple[Described, dict[ValueId, Ref]]:
    """The steps of all values of `body` for a kernel that asks for them itself.

    Axes are as in `body`; the Region has no targets, and its shape is empty.
    """
    return _Describer(body, operands, dims).describe_values()


class _Describer:
    """One description in the making."""

    def __init__(
        self,
        body: Graph,
        operands: Sequence[RegionOperand],
        dims: Dims,
    ) -> None:
        self.body = body
        self.operands = operands
        self.dims = dims
        self.steps: list[Step] = []
        self.sources: list[Source] = []
        self.reads: list[BufferRange] = []
        self._refs: dict[ValueId, Ref] = {}
        self._buffers: dict[BufferRange, int] = {}
        self._loads: dict[View, Ref] = {}
        self._runs: list[tuple[int, int]] | None = None
        self._rank = 0
        self._held = 0
        self._moves = False

    def describe(self, outs: Sequence[View]) -> Described:
        body = self.body
        needed = needed_values(body)
        shape = body.result_types[0].shape
        self._choose_runs(needed, shape)
        self._moves = self._only_moves(needed)
        for value, operand in zip(body.inputs, self.operands, strict=True):
            if isinstance(operand, Scalar):
                self._refs[value] = self._literal(operand)
            elif value in needed:
                self._refs[value] = self._operand(operand)
        for eqn in body.eqns:
            if needed.intersection(eqn.outs):
                self._take(eqn)
        targets = tuple(
            Target(
                self._refs[value],
                self._dtype(out.dtype),
                alignment_of(out),
                out.range.space in INDIRECT_SPACES,
            )
            for value, out in zip(body.results[: len(outs)], outs, strict=True)
        )
        region = Region(
            tuple(where.space in INDIRECT_SPACES for where in self._buffers),
            tuple(self.sources),
            tuple(self.steps),
            targets,
            self.dims.of(self._shape(body.results[0])),
            self.dims(body.result_types[0].size),
            tuple(self._refs[value] for value in body.results[len(outs) :]),
        )
        words = tuple(self.dims.words)
        return Described(
            region, words, tuple(self._buffers), tuple(self.reads), self.dims
        )

    # --- dtypes -------------------------------------------------------------

    def _only_moves(self, needed: frozenset[ValueId]) -> bool:
        """Whether nothing is calculated, so that elements can stay mere bits."""
        if any(isinstance(operand, Held) for operand in self.operands):
            return False
        return not any(
            isinstance(eqn.op, _CALCULATES)
            for eqn in self.body.eqns
            if needed.intersection(eqn.outs)
        )

    def _dtype(self, dtype: DType) -> DType:
        return _BITS.get(dtype, dtype) if self._moves else dtype

    def _literal(self, scalar: Scalar) -> Scalar:
        return Scalar(self._dtype(scalar.dtype), scalar.bits)

    def describe_values(self) -> tuple[Described, dict[ValueId, Ref]]:
        self._take_steps(needed_values(self.body))
        region = Region(
            tuple(where.space in INDIRECT_SPACES for where in self._buffers),
            tuple(self.sources),
            tuple(self.steps),
            (),
            (),
            0,
        )
        words = tuple(self.dims.words)
        described = Described(
            region, words, tuple(self._buffers), tuple(self.reads), self.dims
        )
        return described, self._refs

    def _take_steps(self, needed: frozenset[ValueId]) -> None:
        for value, operand in zip(self.body.inputs, self.operands, strict=True):
            if isinstance(operand, Scalar):
                self._refs[value] = operand
            elif value in needed:
                self._refs[value] = self._operand(operand)
        for eqn in self.body.eqns:
            if needed.intersection(eqn.outs):
                self._take(eqn)

    # --- shapes -------------------------------------------------------------

    def _choose_runs(self, needed: frozenset[ValueId], shape: tuple[int, ...]) -> None:
        """Find the axes that can be merged everywhere, if all steps are elementwise."""
        eqns = [eqn for eqn in self.body.eqns if needed.intersection(eqn.outs)]
        if not all(self._is_aligned(eqn) for eqn in eqns):
            return
        layouts = [
            operand.layout
            for value, operand in zip(self.body.inputs, self.operands, strict=True)
            if value in needed and isinstance(operand, View)
        ]
        shapes = [self.body.type(value).shape for value in needed]
        self._rank = len(shape)
        self._runs = axis_runs(shape, shapes, layouts)

    def _is_aligned(self, eqn: Eqn) -> bool:
        if isinstance(eqn.op, BitcastConvert):
            return self.body.type(eqn.out).shape == self.body.type(eqn.inputs[0]).shape
        return isinstance(eqn.op, (*ELEMENTWISE, Broadcast))

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        """The shape of a value, with axes merged."""
        return self._merged(self.body.type(operand).shape)

    def _merged(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._runs is None:
            return shape
        full = (1,) * (self._rank - len(shape)) + shape
        return tuple(math.prod(full[start:stop]) for start, stop in self._runs)

    def _merged_layout(self, layout: Layout) -> Layout:
        if self._runs is None:
            return layout
        extra = self._rank - len(layout.shape)
        strides = (0,) * extra + layout.strides
        return Layout(
            self._merged(layout.shape),
            tuple(strides[stop - 1] for _, stop in self._runs),
            layout.offset,
        )

    # --- operands -----------------------------------------------------------

    def _operand(self, operand: View | Held) -> Ref:
        if isinstance(operand, View):
            found = self._loads.get(operand)
            if found is None:
                found = self._loads[operand] = self._load(operand)
            return found
        given = Given(self._held)
        self._held += 1
        shape = self._merged(operand.type.shape)
        return self._add(given, (), operand.type.dtype, shape)

    def _load(self, view: View) -> Ref:
        pointer = self._buffers.setdefault(view.range, len(self._buffers))
        self.reads.append(view.touched)
        layout = self._merged_layout(view.layout)
        groups = tuple(
            (count, self.dims(stride)) for count, stride in walked_as_one(layout)
        )
        self.sources.append(
            Source(
                pointer,
                self._dtype(view.dtype),
                groups,
                self.dims(layout.offset),
                self.dims(view.bound),
                alignment_of(view),
            )
        )
        load = Load(len(self.sources) - 1)
        return self._add(load, (), view.dtype, layout.shape)

    def _add(
        self,
        action: Action,
        inputs: Sequence[Ref],
        dtype: DType,
        shape: Sequence[int],
    ) -> Ref:
        made = self._dtype(dtype)
        self.steps.append(Step(action, tuple(inputs), made, self.dims.of(shape)))
        return len(self.steps) - 1

    # --- equations ----------------------------------------------------------

    def _take(self, eqn: Eqn) -> None:
        """Add the steps of an equation."""
        if not eqn.op.multiple_results:
            self._refs[eqn.out] = self._step(eqn)
            return
        refs = [self._ref(operand) for operand in eqn.inputs]
        count = len(eqn.outs)
        types = [self.body.type(out) for out in eqn.outs]
        shape = self._merged(types[0].shape)
        whole = self._add(Apply(eqn.op), refs, types[0].dtype, shape)
        for number, (out, type) in enumerate(zip(eqn.outs, types, strict=True)):
            part = Part(number, count)
            self._refs[out] = self._add(part, [whole], type.dtype, shape)

    def _step(self, eqn: Eqn) -> Ref:
        """Add the step of an equation; its number, or what it is the same as."""
        type = self.body.type(eqn.out)
        refs = [self._ref(operand) for operand in _operands_read(self.body, eqn)]
        shape = self._merged(type.shape)
        if isinstance(eqn.op, ELEMENTWISE):
            return self._add(Apply(eqn.op), refs, type.dtype, shape)
        if isinstance(eqn.op, BitcastConvert):
            return self._bitcast(eqn, refs[0])
        if isinstance(eqn.op, DenseRowGather) and refs:
            return self._widened_rows(eqn.op, refs, eqn)
        action = self._action(eqn)
        if action is None:
            return refs[0]
        if isinstance(action, Repeat) and not refs:
            refs = [self._literal(_fill_of(eqn.op, type.dtype))]
        if isinstance(action, Stretch):
            refs = refs[:1]
        return self._add(action, refs, type.dtype, shape)

    def _ref(self, operand: Operand) -> Ref:
        if isinstance(operand, Scalar):
            return self._literal(operand)
        return self._refs[operand]

    def _bitcast(self, eqn: Eqn, ref: Ref) -> Ref:
        given, made = self.body.type(eqn.inputs[0]), self.body.type(eqn.out)
        action: Action = Apply(eqn.op)
        if made.dtype.itemsize < given.dtype.itemsize:
            action = TakeApart()
        elif made.dtype.itemsize > given.dtype.itemsize:
            action = PutTogether(made.dtype.itemsize // given.dtype.itemsize)
        return self._add(action, [ref], made.dtype, self._merged(made.shape))

    def _widened_rows(self, op: DenseRowGather, refs: list[Ref], eqn: Eqn) -> Ref:
        """The rows of the table, then what they are in f32."""
        table, ids = (self.body.type(operand) for operand in eqn.inputs)
        type = self.body.type(eqn.out)
        fill = fill_value(table.dtype) if op.mode is GatherMode.FILL else None
        rows = self._add(Take(0, ids.ndim, fill), refs, table.dtype, type.shape)
        return self._add(Apply(Cast(type.dtype)), [rows], type.dtype, type.shape)

    def _action(self, eqn: Eqn) -> Action | None:
        """What a shape op does; None if it changes nothing."""
        given = self.body.type(eqn.inputs[0]) if eqn.inputs else None
        dims = self.dims
        match eqn.op:
            case Broadcast(shape):
                return None if given and given.shape == shape else Repeat()
            case Reshape(shape) if given:
                if given.shape == shape:
                    return None
                return Regroup(common_groups(shape, given.shape))
            case Transpose(perm):
                return Permute(perm)
            case Slice(axis, start, _, stride):
                return Stretch(axis, dims(start), dims(stride))
            case Reverse(axes):
                return Mirror(axes)
            case Pad(config) if given:
                return Repeat() if given.size == 0 else self._border(config)
            case Concat(axis):
                return self._join(eqn, axis)
            case Iota(_, _, axis):
                return Count(axis)
            case DenseRowGather():
                return Repeat()
            case Gather(axis, mode) if given:
                if given.size == 0:
                    return Repeat()
                rank = self.body.type(eqn.inputs[1]).ndim
                fill = self._literal(fill_value(given.dtype))
                return Take(axis, rank, fill if mode is GatherMode.FILL else None)
            case GeneralGather() as op if given:
                return self._take_window(op, given)
            case Rope() as op:
                return self._rotate(op, self.body.type(eqn.inputs[1]))
            case DynamicSlice(sizes) if given:
                return self._window(eqn, sizes, given.shape)
        raise CapabilityError(f"{eqn.op} is no step of a pointwise region")

    def _border(self, config: Sequence[tuple[int, int, int]]) -> Border:
        edges = tuple(
            Edge(axis, self.dims(abs(low)), low < 0, self.dims(interior + 1))
            for axis, (low, high, interior) in enumerate(config)
            if (low, high, interior) != (0, 0, 0)
        )
        return Border(edges)

    def _join(self, eqn: Eqn, axis: int) -> Join:
        starts = []
        start = 0
        for operand in eqn.inputs:
            type = self.body.type(operand)
            if type.size:
                starts.append(self.dims(start))
            start += type.shape[axis]
        return Join(axis, tuple(starts))

    def _rotate(self, op: Rope, cos: TensorType) -> Rotate:
        interleaved = op.form is RopeForm.INTERLEAVED
        rotary, half = self.dims(op.rotary), self.dims(op.rotary // 2)
        return Rotate(rotary, half, interleaved, op.is_wide(cos))

    def _take_window(self, op: GeneralGather, given: TensorType) -> Action:
        if given.size == 0:
            return Repeat()
        fill = None
        if op.mode is GatherMode.FILL:
            fill = self._literal(_fill_of(op, given.dtype))
        dims, moving = op.dims, _moving_axes(op.slice_sizes, given.shape)
        components = tuple(
            number
            for number, axis in enumerate(dims.start_index_map)
            if fill is not None or axis in moving
        )
        led = {*dims.start_index_map, *dims.operand_batching_dims}
        fixed = tuple(axis for axis in moving if axis not in led)
        sizes = self.dims.of(op.slice_sizes)
        return TakeWindow(dims, sizes, components, fixed, fill)

    def _window(
        self, eqn: Eqn, sizes: Sequence[int], shape: Sequence[int]
    ) -> Action | None:
        moving = _moving_axes(sizes, shape)
        if not moving:
            return None
        starts = [eqn.inputs[1 + axis] for axis in moving]
        if len(moving) == 1 and isinstance(starts[0], Scalar):
            axis = moving[0]
            start = min(max(int(starts[0].value), 0), shape[axis] - sizes[axis])
            return Stretch(axis, self.dims(start), 1)
        return Window(tuple(moving))


def _fill_of(op: Op, dtype: DType) -> Scalar:
    """What an op gives where there is no element."""
    given = op.fill if isinstance(op, GeneralGather) else None
    return given or fill_value(dtype)


def fill_value(dtype: DType) -> Scalar:
    """What an out-of-range gather in mode FILL gives."""
    if dtype.is_signed:
        return Scalar(dtype, 1 << dtype.bits - 1)
    if dtype.is_unsigned:
        return Scalar(dtype, (1 << dtype.bits) - 1)
    return Scalar.of(True if dtype.is_bool else float("nan"), dtype)


def alignment_of(view: View) -> int:
    """What the address of a buffer is a multiple of, in bytes."""
    offset = view.range.offset
    return min(offset & -offset, ALIGNMENT) if offset else ALIGNMENT
