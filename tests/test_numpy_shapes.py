"""poot.numpy: arrays moved, joined, cut, repeated, padded and indexed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import (
    ArgumentError,
    CheckError,
    ConcretizationError,
    IndexingError,
    ShapeError,
)
from tests.numpy_cases import (
    Case,
    case,
    check,
    each_row,
    one_backend,  # noqa: F401 (a fixture)
)

F16, BF16, F32 = np.float16, ml_dtypes.bfloat16, np.float32
I8, I32, U8 = np.int8, np.int32, np.uint8
V = np.arange(5, dtype=F32) - 1.5
A = np.arange(6, dtype=F32).reshape(2, 3) - 2.5
N = np.arange(6, dtype=I32).reshape(2, 3) - 2
T = np.arange(24, dtype=F32).reshape(2, 3, 4)
NONE = np.zeros((2, 0, 3), F32)
MASK = np.array([[True, False, True], [False, False, True]])

MOVED = (
    "m.reshape(a, (4, -1))",
    "m.reshape(a, (24,))",
    "m.ravel(a)",
    "m.transpose(a)",
    "m.transpose(a, (1, 2, 0))",
    "m.permute_dims(a, (2, 0, 1))",
    "m.matrix_transpose(a)",
    "m.swapaxes(a, 0, -1)",
    "m.moveaxis(a, 0, -1)",
    "m.moveaxis(a, (0, 1), (2, 0))",
    "m.rollaxis(a, 2)",
    "m.rollaxis(a, 0, 3)",
    "m.rollaxis(a, -1, 1)",
    "m.expand_dims(a, (0, -1))",
    "m.flip(a)",
    "m.flip(a, 1)",
    "m.flip(a, (0, -1))",
    "m.flip(a, ())",
    "m.flipud(a)",
    "m.fliplr(a)",
    "m.rot90(a)",
    "m.rot90(a, 2)",
    "m.rot90(a, 3, (1, 2))",
    "m.rot90(a, -4)",
    "m.rot90(a, axes=(2, 0))",
    "m.roll(a, 5)",
    "m.roll(a, -1, 2)",
    "m.roll(a, (1, -2), (0, 1))",
    "m.roll(a, 3, (0, 2))",
    "m.roll(a, 0, 1)",
    "m.repeat(a, 2)",
    "m.repeat(a, 2, -1)",
    "m.repeat(a, 0, 1)",
    "m.repeat(a, np.array([1, 0, 2]), 1)",
    "m.tile(a, 2)",
    "m.tile(a, (2, 1, 3))",
    "m.tile(a, (2, 1, 1, 2))",
    "m.tile(a, ())",
    "m.tile(a, (0, 1, 1))",
    "m.tril(a)",
    "m.triu(a, 1)",
    "m.tril(a, -1)",
    "m.triu(a, -5)",
    "m.diff(a)",
    "m.diff(a, 2, 1)",
    "m.diff(a, 0)",
    "m.diff(a, prepend=0, append=a[:, :, :2])",
    "m.diagonal(a)",
    "m.diagonal(a, 1, 1, 2)",
    "m.diagonal(a, -1, -1, 0)",
    "m.diagonal(a, 9)",
    "m.trace(a)",
    "m.trace(a, 1, 1, 2)",
    "m.split(a, 2, 2)",
    "m.split(a, [1, 3], 2)",
    "m.split(a, (0, 2), 1)",
    "m.array_split(a, 3, -1)",
    "m.array_split(a, 5)",
    "m.vsplit(a, 2)",
    "m.hsplit(a, [1])",
    "m.dsplit(a, 2)",
    "m.unstack(a, axis=1)",
    "m.atleast_3d(a)",
    "m.broadcast_to(a, (2, 2, 3, 4))",
)


def moved_cases() -> list[Case]:
    cases = [case(text, a=T, sums="trace" in text) for text in MOVED]
    # Elements of all sizes move alike; here each way of moving meets another dtype.
    others = (MASK, N.astype(I8), A.astype(F16), A.astype(BF16))
    cases += [
        case(text, a=x)
        for text in ("m.flip(a, 1)", "m.roll(a, 2)", "m.tile(a, (2, 2))", "m.tril(a)")
        for x in (*others, N)
    ]
    cases += [
        case(text, a=NONE) for text in ("m.flip(a)", "m.roll(a, 1, 1)", "m.ravel(a)")
    ]
    cases += [
        case("m.squeeze(a)", a=F32([[[1], [2]]])),
        case("m.squeeze(a, (0, -1))", a=F32([[[1], [2]]])),
        case("m.broadcast_arrays(a, b, 3)", a=A, b=N[0]),
        case("m.atleast_1d(a, b)", a=F32(2), b=A),
        case("m.atleast_2d(a)", a=V),
        case("m.atleast_3d(a, b)", a=V, b=F32(1)),
        case("m.diff(a)", a=MASK),
        case("m.diff(a, 9)", a=N),
        # Cuts beyond the end leave empty parts, as in NumPy; not in JAX.
        case("m.split(a, (2, 9, 1), 1)[2]", a=T, dtype=F32),
        case("m.diag(a)", a=V),
        case("m.diag(a, 2)", a=N[0]),
        case("m.diag(a, -1)", a=N[0]),
        case("m.diag(a, 1)", a=A),
        case("m.diag(a, 2)", a=np.zeros(0, F32)),
        case("m.trace(a)", a=N.astype(I8)),
        case("m.repeat(a, 3)", a=F32(2)),
        case("m.tile(a, 2)", a=3),
        case(
            "m.repeat(a, np.array([1, 0, 2]), total_repeat_length=5)",
            a=N[0],
            numpy="m.repeat(a, [1, 0, 4])",
        ),
    ]
    return cases


JOINED = (
    "m.concatenate([a, b])",
    "m.concatenate([a, b, a], axis=-1)",
    "m.concatenate((a, b), axis=None)",
    "m.concatenate(a)",
    "m.concatenate([a])",
    "m.concat([a, b], axis=1)",
    "m.stack([a, b])",
    "m.stack([a, b], -1)",
    "m.vstack([a, b])",
    "m.hstack([a, b])",
    "m.dstack([a, b])",
    "m.column_stack([a, b])",
    "m.append(a, b)",
    "m.append(a, b, 0)",
)


def joined_cases() -> list[Case]:
    cases = [case(text, a=A, b=N) for text in JOINED]
    cases += [
        case(text, a=a, b=b)
        for text in ("m.vstack([a, b])", "m.hstack([a, b])", "m.dstack([a, b])")
        for a, b in ((V, V), (F16(1), 2.5), (MASK[0], N[0]))
    ]
    cases += [
        case("m.column_stack([a, b])", a=V, b=V[::-1].copy()),
        case("m.concatenate([a, b], 1)", a=np.zeros((2, 0), F32), b=A),
        case("m.stack([a, b])", a=1, b=2.5),
        case("m.concatenate([a, b], dtype='float16')", a=A, b=N),
        case("m.append(a, 3)", a=N),
        case("m.concatenate([a, a])", a=A.astype(BF16)),
    ]
    return cases


def padded_cases() -> list[Case]:
    cases = [
        case(f"m.pad(a, {width}, {mode!r})", a=A)
        for mode in ("edge", "reflect", "symmetric", "wrap")
        for width in (1, ((0, 2), (5, 4)))
    ]
    cases += [
        case(text, a=x)
        for text in ("m.pad(a, 1)", "m.pad(a, ((1, 0), (2, 3)))")
        for x in (A, N.astype(I8), MASK, A.astype(F16))
    ]
    cases += [
        case("m.pad(a, (1, 2))", a=NONE),
        case("m.pad(a, 2, constant_values=-1.5)", a=A),
        case("m.pad(a, 1, constant_values=2.7)", a=N),
        case("m.pad(a, (1, 2), constant_values=(7, 8))", a=A),
        case("m.pad(a, 1, constant_values=((1, 2), (3, 4)))", a=N),
        case("m.pad(a, 0)", a=A),
        case("m.pad(a, 3, mode='reflect')", a=V[:1]),
        case("m.pad(a, 1, constant_values=b)", a=A, b=F32(9)),
    ]
    return cases


P = np.array([1, 2, 3, 4], F32)
BEYOND = np.array([4, 9, -1, -4, -5], I32)
ROWS = np.array([[0, 2, -1], [1, 1, -3]], I32)


def taken_cases() -> list[Case]:
    nan, low = np.nan, np.iinfo(I32).min
    index = np.array([[3], [-4]], I32)
    return [
        case("m.take(a, b)", a=P, b=BEYOND, values=[nan, nan, 4, 1, nan]),
        case("m.take(a, b, mode='fill')", a=P, b=BEYOND, values=[nan, nan, 4, 1, nan]),
        # Negative positions count from the end before they are clipped; not in JAX.
        case("m.take(a, b, mode='clip')", a=P, b=BEYOND, values=[4, 4, 4, 1, 1]),
        case("m.take(a, b, mode='wrap')", a=P, b=BEYOND),
        case("m.take(a, b, fill_value=7)", a=P, b=BEYOND, values=[7, 7, 4, 1, 7]),
        case("m.take(a, b)", a=P.astype(I32), b=BEYOND, values=[low, low, 4, 1, low]),
        case("m.take(a, b)", a=P.astype(U8), b=BEYOND, values=[255, 255, 4, 1, 255]),
        case("m.take(a, b)", a=P > 2, b=BEYOND, values=[True, True, True, False, True]),
        case("m.take(a, b, axis=1)", a=T, b=np.array([[2, 0], [1, -1]], I32)),
        case("m.take(a, b, axis=-1)", a=T, b=U8(3)),
        case("m.take(a, 7)", a=T),
        case("m.take(a, b, 0)", a=A, b=np.array([1, 0], I8)),
        case("m.take(a, b, axis=0)", a=A, b=np.zeros((0, 2), I32)),
        # From an axis without elements all is filled.
        case(
            "m.take(a, b, 1)",
            a=NONE,
            b=np.array([0], I32),
            values=np.full((2, 1, 3), nan),
            dtype=F32,
        ),
        # The size does not fit the indices' dtype.
        case(
            "m.take(a, b, 0, mode='wrap')",
            a=np.arange(300, dtype=F32),
            b=U8([7, 255]),
            dtype=F32,
        ),
        case("m.take_along_axis(a, b, 1)", a=A, b=ROWS),
        case("m.take_along_axis(a, b, -1)", a=T[:, :, :3], b=ROWS[:, None, :]),
        case("m.take_along_axis(a, b, 0)", a=A, b=ROWS[:1] % 2),
        case("m.take_along_axis(a, b, None)", a=A, b=np.array([5, -1], I32)),
        case("m.take_along_axis(a, b, 1)", a=N, b=index, values=[[low], [low]]),
        case(
            "m.take_along_axis(a, b, 1, mode='clip')",
            a=A,
            b=index,
            values=[[A[0, 2]], [A[1, 0]]],
        ),
        case(
            "m.take_along_axis(a, b, 1, fill_value=9)",
            a=A,
            b=index // 2,
            values=[[A[0, 1]], [A[1, 1]]],
        ),
        case(
            "m.take_along_axis(a, b, 1, fill_value=9)",
            a=A,
            b=index + 1,
            values=[[9], [A[1, 0]]],
        ),
    ]


@each_row([*moved_cases(), *joined_cases()])
def test_values(row: Case) -> None:
    check(row)


@each_row([*padded_cases(), *taken_cases()])
def test_padded_and_taken(row: Case) -> None:
    check(row)


@pytest.mark.usefixtures("one_backend")
def test_roll_by_data() -> None:
    f = poot.jit(lambda x, by: jnp.roll(x, by, 1))
    for shift in (0, 1, -5, 7):
        np.testing.assert_array_equal(f(A, jnp.int32(shift)), np.roll(A, shift, 1))


@pytest.mark.usefixtures("one_backend")
def test_checked_positions() -> None:
    with poot.config.override(check_bounds=True):
        inside = jnp.take(P, np.array([3, -4], I32))
        np.testing.assert_array_equal(inside, [4, 1])
        rows = jnp.take_along_axis(A, ROWS, 1)
        np.testing.assert_array_equal(rows, np.take_along_axis(A, ROWS, 1))
        with pytest.raises(CheckError, match="axis 0 with size 4"):
            jnp.take(P, BEYOND, mode="clip").block_until_ready()
        with pytest.raises(CheckError, match="axis 1 with size 3"):
            jnp.take_along_axis(A, ROWS + 1, 1).block_until_ready()


@pytest.mark.parametrize("one_backend", ["oracle"], indirect=True)
def test_refusals(one_backend: None) -> None:  # noqa: F811
    for call, words in (
        (lambda: jnp.reshape(A, (4, -1)), "6 elements"),
        (lambda: jnp.swapaxes(A, 0, 2), "axis 2 is out of range"),
        (lambda: jnp.rollaxis(A, 0, 3), "start 3 is not in"),
        (lambda: jnp.flip(A, (0, 0)), "twice"),
        (lambda: jnp.fliplr(V), "needs 2 axes"),
        (lambda: jnp.roll(A, (1, 2, 3), (0, 1)), "3 shifts for 2 axes"),
        (
            lambda: jnp.repeat(A, np.array([1, 2]), 1),
            r"2 repeats for axis 1 of \(2, 3\)",
        ),
        (lambda: jnp.repeat(A, -1), "from 0 up"),
        (lambda: jnp.tile(A, -1), "takes 0 or more"),
        (lambda: jnp.tril(V), "needs 2 axes"),
        (lambda: jnp.diff(A, -1), "-1 times"),
        (lambda: jnp.diag(T), "takes 1 or 2 axes"),
        (
            lambda: jnp.split(V, 2),
            "does not divide into 2 equal parts",
        ),
        (lambda: jnp.array_split(V, 0), "needs one at least"),
        (lambda: jnp.vsplit(V, 1), "needs 2 axes"),
        (lambda: jnp.concatenate([]), "needs at least one array"),
        (lambda: jnp.concatenate([V, F32(1)]), "without axes"),
        (lambda: jnp.concatenate([A, V]), "differ in axes"),
        (lambda: jnp.concatenate([A, A], 2), "axis 2 is out of range"),
        (lambda: jnp.stack([A, V]), r"given shapes \(2, 3\), \(5,\)"),
        (lambda: jnp.pad(A, ((1, 2), (3, 4), (5, 6))), "a pair for each of 2 axes"),
        (lambda: jnp.pad(A, -1), "from 0 up"),
        (lambda: jnp.pad(NONE, 1, "edge"), "has no element for mode 'edge'"),
        (lambda: jnp.take_along_axis(A, ROWS[0], 1), "as many of both"),
        (lambda: jnp.broadcast_to(A, (3, 3)), "do not broadcast"),
        (lambda: jnp.squeeze(A, 0), "needs 1"),
    ):
        with pytest.raises(ShapeError, match=words):
            call()
    with pytest.raises(ArgumentError, match="mode is 'mean', takes 'constant', 'edge'"):
        jnp.pad(A, 1, "mean")
    with pytest.raises(ArgumentError, match="mode is 'raise', takes 'fill', 'clip'"):
        jnp.take(P, BEYOND, mode="raise")
    with pytest.raises(IndexingError, match="the indices are f32, takes integers"):
        jnp.take(P, P)
    with pytest.raises(IndexingError, match="no element to take"):
        jnp.take(NONE, np.array([0], I32), 1, mode="clip")
    with pytest.raises(ConcretizationError, match="numbers of a traced"):
        poot.jit(lambda n: jnp.repeat(A, n))(2)


def test_names_of_one_function() -> None:
    assert jnp.concat is jnp.concatenate
    assert jnp.permute_dims is jnp.transpose
    names: Any = (jnp.amax, jnp.amin, jnp.around)
    assert names == (jnp.max, jnp.min, jnp.round)
