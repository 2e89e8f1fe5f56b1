"""Laws of ops that move elements: chains get short, and what moves nothing goes."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.equation import Operand
from poot.core.op import Op
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.lowering.passes.driver import Reason, Rewrite
from poot.lowering.passes.laws import Answer, Becomes, Declines, Law, Site

_MOVED = "elements are only moved; all dtypes"
DROP_MOVE = Rewrite("drop_move", f"a move that leaves all in place is none: {_MOVED}")
MERGE_MOVES = Rewrite("merge_moves", f"two moves of a kind are one: {_MOVED}")
AS_RESHAPE = Rewrite(
    "transpose_as_reshape",
    f"axes of size 1 count nothing, so that the others' order is all: {_MOVED}",
)
MOVE_LITERAL = Rewrite(
    "move_literal", f"equal elements are equal in any order: {_MOVED}"
)
PART_OF_CONCAT = Rewrite(
    "slice_of_part", f"a slice that meets one part of a concat is one of it: {_MOVED}"
)
FEWER_PARTS = Rewrite(
    "fewer_parts", f"parts without elements, and a concat of one, add nothing: {_MOVED}"
)


def literal(site: Site) -> Answer:
    """A move of something that repeats a literal repeats it too."""
    if isinstance(site.inputs[0], Scalar):
        return None
    number = site.literal()
    return None if number is None else site.repeated(MOVE_LITERAL, number)


def unmoved(site: Site) -> Answer:
    """A move that changes nothing, by its shape and parameters."""
    given = site.given()
    if isinstance(site.inputs[0], Scalar) or given.shape != site.type.shape:
        return None
    match site.op:
        case Transpose(perm):
            stays = perm == tuple(sorted(perm))
        case Reverse(axes):
            stays = all(given.shape[axis] <= 1 for axis in axes)
        case Pad(config):
            # Elements may fall out on one side and come in on the other.
            stays = all(edge[:2] == (0, 0) for edge in config)
        case _:
            stays = isinstance(site.op, Broadcast | Reshape | Slice)
    return Becomes(DROP_MOVE, site.inputs[:1]) if stays else None


def merged(site: Site) -> Answer:
    """A move of a move of the same kind."""
    maker = site.maker()
    if maker is None or type(maker.op) is not type(site.op):
        return None
    source = maker.inputs[0]
    op = _merged(site, site.op, maker.op)
    return None if op is None else Becomes(MERGE_MOVES, (source,), op)


def _merged(site: Site, outer: Op, inner: Op) -> Op | None:
    match outer, inner:
        case (Reshape(), Reshape()) | (Broadcast(), Broadcast()):
            return outer
        case Transpose(perm), Transpose(first):
            return Transpose(tuple(first[axis] for axis in perm))
        case Reverse(axes), Reverse(first):
            return Reverse(tuple(sorted(set(axes) ^ set(first))))
        case Slice(axis, start, end, stride), Slice(first_axis) if axis == first_axis:
            assert isinstance(inner, Slice)
            step = inner.stride
            low = inner.start + start * step
            high = min(inner.start + end * step, inner.end)
            return Slice(axis, min(low, high), high, stride * step)
    return None


def as_reshape(site: Site) -> Answer:
    """A transpose that keeps the order of all axes but those of size 1."""
    assert isinstance(site.op, Transpose)
    if isinstance(site.inputs[0], Scalar):
        return None
    shape = site.given().shape
    moved = [axis for axis in site.op.perm if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return Becomes(AS_RESHAPE, site.inputs, Reshape(site.type.shape))


def part(site: Site) -> Answer:
    """A slice of a concat along the same axis."""
    assert isinstance(site.op, Slice)
    maker, op = site.maker(), site.op
    if maker is None or not isinstance(maker.op, Concat) or maker.op.axis != op.axis:
        return None
    if not site.type.size:
        return None
    # One past the last element that is taken.
    end = op.start + (site.type.shape[op.axis] - 1) * op.stride + 1
    first = 0
    for operand in maker.inputs:
        size = site.draft.edit.type(operand).shape[op.axis]
        if first <= op.start and end <= first + size:
            taken = Slice(op.axis, op.start - first, end - first, op.stride)
            return Becomes(PART_OF_CONCAT, (operand,), taken)
        first += size
    detail = f"elements {op.start} to {end} of axis {op.axis}"
    return Declines(PART_OF_CONCAT, Reason.ACROSS_PARTS, detail)


def fewer(site: Site) -> Answer:
    """A concat without parts that have no elements."""
    assert isinstance(site.op, Concat)
    kept: list[Operand] = []
    for operand in site.inputs:
        type = site.draft.edit.type(operand)
        if type.shape[site.op.axis]:
            kept.append(operand)
    if len(site.inputs) == 1:
        return Becomes(FEWER_PARTS, site.inputs)
    if len(kept) == len(site.inputs) or not kept:
        return None
    return Becomes(FEWER_PARTS, tuple(kept), site.op)


_MOVE: tuple[Law, ...] = (literal, unmoved, merged)
LAWS: dict[type[Op], tuple[Law, ...]] = {
    Broadcast: _MOVE,
    Reshape: _MOVE,
    Reverse: _MOVE,
    Slice: (*_MOVE, part),
    Transpose: (*_MOVE, as_reshape),
    Pad: (unmoved,),
    Concat: (fewer,),
}
REWRITES = (
    DROP_MOVE,
    MERGE_MOVES,
    AS_RESHAPE,
    MOVE_LITERAL,
    PART_OF_CONCAT,
    FEWER_PARTS,
)
