"""Rules of batching where examples meet: indices outside, equal ones, groups, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.op import Op
from poot.core.ops.conv import Conv
from poot.core.ops.elementwise import Binary, BinaryOp, BitcastConvert, Clamp, Select
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.random import Threefry2x32
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.ops.shape import Broadcast, Concat, Iota, Pad, Reshape, Transpose
from poot.core.ops.sort import Sort
from poot.core.types import TensorType
from poot.interpreters.batch.rules import batch
from tests.batch_runs import Operand, axes_of, check, chosen
from tests.numerics import Array, rng_of

SIZE = 3
ADD = Binary(BinaryOp.ADD)
Examples = list[Array]


def numbers(shape: Sequence[int], dtype: Any = np.float32, reach: int = 4) -> Examples:
    """Small whole numbers, other ones for each example."""
    rng = rng_of(f"{tuple(shape)}{np.dtype(dtype)}{reach}")
    least = 0 if np.dtype(dtype).kind == "u" else -reach
    return [rng.integers(least, reach + 1, shape).astype(dtype) for _ in range(SIZE)]


def listed(*examples: Any, dtype: Any = np.int32) -> Examples:
    return [np.array(example, dtype) for example in examples]


def check_all(op: Op, *operands: Examples | Scalar, most: int = 40) -> None:
    """Many choices of batched operands and axes; Scalars are never batched."""
    ranks = [None if isinstance(x, Scalar) else x[0].ndim for x in operands]
    for axes in axes_of(ranks, most, str(op)):
        given: list[Operand] = [
            x if axis is not None or isinstance(x, Scalar) else x[0]
            for x, axis in zip(operands, axes, strict=True)
        ]
        check(op, given, axes, SIZE)


def bound(op: Op, operands: Sequence[Any], axes: Sequence[int | None]) -> list[str]:
    """The names of the ops that a rule binds."""
    return [each.name for each in check(op, operands, axes, SIZE)]


# --- elementwise and shapes -------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batches_at_one_place_are_not_moved(axis):
    x, y = numbers((2, 5)), numbers((2, 5), reach=9)
    assert bound(ADD, (x, y), (axis, axis)) == ["binary"]
    assert bound(ADD, (x, numbers((1, 5))), (axis, axis)) == ["binary"]
    assert bound(ADD, (x, y[0][0]), (0, None)) == ["binary"]
    two = Scalar.of(2, dtypes.float32)
    assert bound(ADD, (x, two), (axis, None)) == ["binary"]
    assert bound(Clamp(), (two, x, two), (None, axis, None)) == ["clamp"]
    # The last axes are the same: the one more in front of x is not in the way.
    assert bound(ADD, (x, numbers((5,))), (1, 0)) == ["binary"]


def test_an_example_of_lower_rank_is_aligned_at_its_end():
    # vmap(lambda s, v: s * v): rows, not columns.
    assert bound(ADD, (numbers(()), numbers((2,))), (0, 0)) == ["reshape", "binary"]
    assert bound(ADD, (numbers(()), numbers((2,))[0]), (0, None)) == [
        "reshape",
        "binary",
    ]
    assert bound(ADD, (numbers((3,)), numbers((2, 3))[0]), (1, None)) == [
        "reshape",
        "binary",
    ]
    check_all(ADD, numbers((3,)), numbers((3, 3)))
    check_all(ADD, numbers(()), numbers((3, 3, 3)))


def test_select_by_a_condition_an_example():
    condition = [np.array(n % 2 == 0) for n in range(SIZE)]
    check_all(Select(), condition, numbers((2, 3)), numbers((3,)))
    zero = Scalar.of(0, dtypes.float32)
    check_all(Select(), condition, zero, numbers((2,)))
    check_all(Select(), condition, zero, Scalar.of(1, dtypes.float32))


def test_random_words_of_keys_and_counters():
    keys = numbers((), np.uint32, 99)
    check_all(Threefry2x32(), keys, keys, numbers((4,), np.uint32), keys[0:1] * 3)
    zero = Scalar.of(0, dtypes.uint32)
    check_all(Threefry2x32(), keys, zero, numbers((2, 3), np.uint32), zero)


@pytest.mark.parametrize(
    ("to", "given", "shape"),
    [
        (dtypes.uint8, np.float32, (2, 3)),
        (dtypes.float32, np.uint8, (2, 4)),
        (dtypes.uint16, np.uint8, (2,)),
        (dtypes.int32, np.float32, (2, 3)),
        (dtypes.uint16, np.float32, ()),
    ],
)
def test_bits_read_as_another_width(to, given, shape):
    check_all(BitcastConvert(to), numbers(shape, given))


def test_a_reshape_leaves_the_batch_where_it_can():
    assert bound(Reshape((2, 3, 1)), (numbers((2, 3)),), (2,)) == ["reshape"]
    assert bound(Reshape((6, 5)), (numbers((2, 3, 5)),), (2,)) == ["reshape"]
    assert bound(Reshape((15,)), (numbers((3, 5)),), (1,)) == ["transpose", "reshape"]
    check_all(Reshape((0, 7)), numbers((3, 0, 2)))
    check_all(Reshape((1, 1, 2, 1, 1)), numbers((1, 2, 1)))


def test_new_axes_stand_before_or_behind_the_batch():
    assert bound(Broadcast((4, 5, 3)), (numbers((3,)),), (0,)) == [
        "reshape",
        "broadcast",
    ]
    assert bound(Broadcast((4, 2, 3)), (numbers((2, 1)),), (1,)) == ["broadcast"]
    check_all(Broadcast((4, 2, 3)), numbers((2, 1)))
    check_all(Transpose((2, 0, 1)), numbers((2, 3, 4)))


def test_concat_of_examples_and_what_all_share():
    check_all(Concat(1), numbers((2, 3)), numbers((2, 1)), numbers((2, 5)))
    check_all(Concat(0), numbers((2, 3)), numbers((0, 3)))
    assert bound(Concat(0), (numbers((2, 3)), numbers((1, 3))), (2, 2)) == ["concat"]


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.float8_e8m0fnu])
@pytest.mark.parametrize("config", [((1, 2, 1), (0, 0, 0)), ((-1, 3, 2), (1, -2, 0))])
def test_padding_with_a_value_an_example(config, dtype):
    x = [np.abs(one).astype(dtype) for one in numbers((3, 4))]
    values = [np.array(2.0**n).astype(dtype) for n in range(SIZE)]
    check_all(Pad(config), x, values)
    check_all(Pad(config), x, Scalar.of(1, dtypes.as_dtype(dtype)))
    check_all(Pad(()), values, values)


def test_what_has_no_operands_is_the_same_for_all():
    op = Iota(dtypes.int32, (2, 3), 1)
    assert batch[op.key].__doc__
    assert check(op, (), (), SIZE) == [op]


def test_payloads_of_a_sort_go_with_keys_that_all_share():
    keys = numbers((2, 5), reach=2)
    check_all(Sort(1, 2), keys, numbers((2, 5), np.int32), numbers((2, 5), np.int8))
    check_all(Sort(0, descending=True), keys, numbers((2, 5), np.int32))


# --- contractions -----------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1), (1, None)])
def test_a_product_of_matrices_moves_nothing(axes):
    operands = [
        x[0] if axis is None else x
        for x, axis in zip((numbers((2, 4)), numbers((4, 3))), axes, strict=True)
    ]
    (name,) = bound(MatMul(), operands, axes)
    assert name == ("matmul" if axes == (0, 0) else "dot_general")


def test_products_of_matrices_with_leading_axes():
    check_all(MatMul(), numbers((2, 3, 4)), numbers((2, 4, 5)))
    check_all(
        MatMul(dtypes.float32), numbers((2, 3), np.float16), numbers((3, 1), np.float16)
    )


@st.composite
def dots(draw):
    """A contraction of up to two axes of each role, in any order."""
    counts = [draw(st.integers(0, 2)) for _ in range(4)]
    batched, summed, rows, columns = (
        [draw(st.integers(1, 3)) for _ in range(n)] for n in counts
    )
    sides = []
    for free in (rows, columns):
        roles = [*range(len(batched) + len(summed) + len(free))]
        order = draw(st.permutations(roles))
        sizes = [*batched, *summed, *free]
        places = [order.index(role) for role in roles]
        taken = len(batched), len(batched) + len(summed)
        sides.append(
            (
                tuple(places[taken[0] : taken[1]]),
                tuple(places[: taken[0]]),
                tuple(sizes[role] for role in order),
            )
        )
    (left, left_batch, a), (right, right_batch, b) = sides
    return DotGeneral(left, right, left_batch, right_batch), a, b


@given(dots(), st.data())
@settings(max_examples=80)
def test_any_contraction(dot, data):
    op, a, b = dot
    axes = data.draw(axes_for(a, b))
    operands = [numbers(a), numbers(b, reach=3)]
    check(op, chosen(operands, axes), axes, SIZE)


def axes_for(*shapes):
    """Axes of operands of these shapes, at least one of them batched."""
    each = [st.sampled_from([None, *range(len(shape) + 1)]) for shape in shapes]
    return st.tuples(*each).filter(lambda axes: any(a is not None for a in axes))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_matrices_that_each_example_chooses_from_its_own(dtype):
    # 50 matrices an example: an index of all of them does not fit a byte.
    x, w = numbers((4, 2)), numbers((50, 2, 3))
    high, low = np.iinfo(dtype).max, np.iinfo(dtype).min
    idx = listed([49, 50, high, low], [0, 0, 1, low], [3, 3, 49, 2], dtype=dtype)
    check_all(IndexedMatMul(), x, w, idx)
    none = [np.zeros((0, 2), np.float32)] * SIZE
    check_all(IndexedMatMul(), none, numbers((0, 2, 3)), [np.zeros(0, dtype)] * SIZE)


@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("out", [None, dtypes.float64])
def test_convolutions_with_groups(groups, out):
    features, images = groups
    op = Conv((2,), ((1, 2),), (1,), (2,), features, images, out)
    check_all(op, numbers((4, 4, 6)), numbers((8, 4 // features, 3)))


@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2)])
def test_convolutions_of_no_example(groups):
    op = Conv((1,), ((0, 0),), (1,), (1,), *groups)
    x, w = numbers((2, 2, 4)), numbers((4, 2 // groups[0], 3))
    for axes in axes_of([3, 3], 60, "convolutions"):
        check(op, chosen((x, w), axes), axes, 0)


def test_a_convolution_joins_the_batch_to_what_it_stands_beside():
    op = Conv((1,), ((0, 0),), (1,), (1,))
    x, w = numbers((2, 3, 5)), numbers((4, 3, 2))
    steps = ["reshape", "conv", "reshape"]
    assert bound(op, (x, w[0]), (0, None)) == steps
    assert bound(op, (x[0], w), (None, 0)) == steps
    both = ["reshape", "reshape", "conv", "reshape"]
    assert bound(op, (x, w), (0, 0)) == both
    assert bound(op, (x, w), (1, 0)) == both


# --- reading where the data says --------------------------------------------


@pytest.mark.parametrize("mode", GatherMode)
def test_indices_outside_of_each_example(mode):
    source = [np.arange(1, 5, dtype=np.float32) * 10**n for n in range(SIZE)]
    idx = listed([4, 9, -1, -4, -5], [0, 3, 4, 2, -1], [1, 1, 1, -1, 3])
    check_all(Gather(0, mode), source, idx)
    check_all(Gather(0, mode), source, listed(-1, 3, 4))
    check_all(Gather(0, mode), source, Scalar.of(7, dtypes.int32))
    check_all(
        Gather(1, mode), numbers((2, 4, 3)), listed([[4], [-1]], [[0], [2]], [[3], [9]])
    )
    check_all(Gather(1, mode), numbers((2, 4), np.int8), numbers((2, 2), np.uint8, 9))


def test_a_gather_binds_one_op_and_no_transpose():
    source, idx = numbers((2, 4, 3)), listed([0, 1], [1, 3], [2, 2])
    assert bound(Gather(1), (source[0], idx), (None, 1)) == ["gather"]
    assert bound(Gather(1), (source, idx[0]), (3, None)) == ["gather"]
    assert bound(Gather(1), (source, idx), (2, 1)) == ["reshape", "general_gather"]


def test_fill_from_an_axis_without_elements():
    source, idx = numbers((0, 2)), listed([0, 1], [-1, 3], [2, 2])
    check_all(Gather(0, GatherMode.FILL), source, idx)


@st.composite
def gathers(draw):
    """Shapes of operand and indices, the window, and what their axes are."""
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(ndim)]
    rank = draw(st.integers(0, 2))
    vectors = [draw(st.integers(1, 3)) for _ in range(rank)]
    roles = [draw(st.sampled_from(["window", "collapsed", "batching"])) for _ in shape]
    others = draw(st.permutations(range(rank)))
    pairs = []
    for axis, role in enumerate(roles):
        if role == "batching" and len(pairs) < rank:
            other = others[len(pairs)]
            pairs.append((axis, other))
            shape[axis] = vectors[other]
        elif role == "batching":
            roles[axis] = "collapsed"
    led = [axis for axis, role in enumerate(roles) if role != "batching"]
    led = draw(st.lists(st.sampled_from(led), unique=True)) if led else []
    window = [
        draw(st.integers(1, n)) if role == "window" else 1
        for n, role in zip(shape, roles, strict=True)
    ]
    kept = roles.count("window")
    offset = draw(st.sampled_from(list(_sorted_places(kept + rank, kept))))
    dims = GatherDims(
        offset,
        tuple(axis for axis, role in enumerate(roles) if role == "collapsed"),
        tuple(led),
        tuple(axis for axis, _ in pairs),
        tuple(other for _, other in pairs),
    )
    return dims, tuple(shape), (*vectors, len(led)), tuple(window)


def _sorted_places(rank: int, count: int):
    """Every choice of `count` of `rank` axes."""
    chosen_by = range(1 << rank)
    for bits in chosen_by:
        places = tuple(axis for axis in range(rank) if bits >> axis & 1)
        if len(places) == count:
            yield places


@given(gathers(), st.sampled_from(GatherMode), st.data())
@settings(max_examples=150)
def test_any_gather(gather, mode, data):
    dims, shape, indices, window = gather
    axes = data.draw(axes_for(shape, indices))
    operands = [numbers(shape), numbers(indices, np.int32, 5)]
    op = GeneralGather(dims, window, mode)
    bound_ops = check(op, chosen(operands, axes), axes, SIZE)
    assert sum(each.name != "transpose" for each in bound_ops) == 1


STARTS = (
    listed(-9, 0, 2),
    listed(1, 127, -128, dtype=np.int8),
    listed(0, 2**32 - 1, 1, dtype=np.uint32),
    listed(-(2**62), 2**62, 1, dtype=np.int64),
)


@pytest.mark.parametrize("sizes", [(2, 4), (3, 1), (5, 6), (5, 1), (0, 2)])
def test_blocks_at_starts_of_each_example(sizes):
    x = numbers((5, 6), reach=99)
    op = DynamicSlice(sizes)
    for first in STARTS:
        check_all(op, x, first, STARTS[0])
        check_all(op, x, Scalar.of(3, dtypes.int32), first)
        check_all(op, x, first, Scalar.of(-3, dtypes.int16))
        check_all(op, x, first, Scalar.of(2**40 + 1, dtypes.int64))


@pytest.mark.parametrize("sizes", [(2, 4), (3, 1), (5, 6), (5, 1), (0, 2)])
def test_blocks_written_at_starts_of_each_example(sizes):
    x, update = numbers((5, 6)), numbers(sizes, reach=99)
    op = DynamicUpdateSlice()
    for first in STARTS:
        check_all(op, x, update, first, STARTS[0])
        check_all(op, x, update, Scalar.of(3, dtypes.int32), first)
    check_all(op, numbers(()), Scalar.of(1, dtypes.float32))


# --- writing where the data says --------------------------------------------

ROWS = ScatterDims((1,), (0,), (0,))


@pytest.mark.parametrize("mode", ScatterMode)
@pytest.mark.parametrize("member", ScatterOp)
def test_updates_of_one_place_and_of_none(member, mode):
    operand, updates = numbers((4, 2)), numbers((5, 2), reach=3)
    places = ([4, 1, -1, 1, 1], [0, 0, 0, 0, 0], [3, 9, 3, -5, 2])
    idx = listed(*[[[n] for n in each] for each in places])
    check_all(Scatter(member, ROWS, mode), operand, idx, updates)
    at_once = ScatterDims((), (0,), (0,))
    one = Scatter(member, at_once, mode, True, True)
    check_all(one, numbers((4,)), listed([4], [1], [-1]), numbers(()))
    seven = Scalar.of(7, dtypes.float32)
    check_all(one, numbers((4,)), listed([4], [1], [-1]), seven)


def test_promises_hold_for_each_example_only():
    operand, idx = numbers((4, 2)), listed([[0], [3]], [[1], [2]], [[0], [1]])
    op = Scatter(ScatterOp.SET, ROWS, ScatterMode.DROP, True, True)
    updates = numbers((2, 2), reach=9)
    (write,) = check(op, (operand, idx, updates), (0, 0, 0), SIZE)
    assert (write.indices_are_sorted, write.unique_indices) == (False, True)
    (write,) = check(op, (operand, idx[0], updates), (0, None, 0), SIZE)
    assert (write.indices_are_sorted, write.unique_indices) == (True, True)


@given(gathers(), st.sampled_from(ScatterOp), st.sampled_from(ScatterMode), st.data())
@settings(max_examples=150)
def test_any_scatter(gather, member, mode, data):
    dims, shape, indices, window = gather
    types = TensorType(shape, dtypes.float32), TensorType(indices, dtypes.int32)
    updates = GeneralGather(dims, window, GatherMode.FILL).infer(*types).shape
    axes = data.draw(axes_for(shape, indices, updates))
    operands = [numbers(shape), numbers(indices, np.int32, 5), numbers(updates)]
    op = Scatter(member, dims.scatter, mode)
    bound_ops = check(op, chosen(operands, axes), axes, SIZE)
    assert sum(each.name == "scatter" for each in bound_ops) == 1
    assert len(bound_ops) <= 5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_slots_of_each_example_in_a_pool(dtype):
    # 100 slots an example: a slot of the pool does not fit a byte.
    high, low = np.iinfo(dtype).max, np.iinfo(dtype).min
    slots = listed([99, 3, 3, high], [low, 0, 100, 0], [1, 1, 1, 1], dtype=dtype)
    check_all(ScatterUpdate(), numbers((100, 2)), numbers((4, 2), reach=99), slots)
    check_all(ScatterUpdate(), numbers((0, 2)), numbers((4, 2)), slots)


def test_rows_for_slots_that_all_share_are_written_without_a_pool():
    base, rows = numbers((6, 2)), numbers((3, 2))
    slots = np.array([5, -1, 5], np.int32)
    assert bound(ScatterUpdate(), (base, rows, slots), (1, 1, None)) == [
        "scatter_update"
    ]
    names = bound(ScatterUpdate(), (base, rows, slots), (0, 0, None))
    assert "transpose" not in names
