"""Convolutions: all options crossed at random, what is planned, and lax's names."""

from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import poot
from poot import lax
from poot.core.dtypes import as_dtype
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.conv import Conv
from poot.core.oracle import evaluate
from poot.core.types import TensorType
from tests.kernel_harness import assert_exact, one_op, plan_graph, run_graph
from tests.numerics import rng_of
from tests.test_matmul import PROFILES, small_integers

F32, I32 = np.float32, np.int32
DTYPES = (F32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32)


@st.composite
def convs(draw: Any) -> tuple[Conv, tuple[int, ...], tuple[int, ...]]:
    """A convolution with its shapes; none of the options is left out."""
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    groups, parts = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    taken, made = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    spatial = each(1, 9 if rank < 3 else 5)
    op = Conv(
        each(1, 3),
        tuple(zip(each(-1, 3), each(-1, 3), strict=True)),
        each(1, 3),
        each(1, 2),
        groups,
        parts,
    )
    batch = parts * draw(st.integers(1, 2))
    x = (batch, groups * taken, *spatial)
    type = TensorType(x, as_dtype(F32))
    assume(all(op.padded(type, axis) >= 0 for axis in range(rank)))
    return op, x, (groups * parts * made, taken, *each(1, 3))


def in_jax(op: Conv, x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x,
        w,
        op.strides,
        op.padding,
        op.lhs_dilation,
        op.rhs_dilation,
        feature_group_count=op.feature_group_count,
        batch_group_count=op.batch_group_count,
    )


@settings(max_examples=12, deadline=None)
@given(
    convs(),
    st.sampled_from(DTYPES),
    st.sampled_from(list(PROFILES)),
    st.booleans(),
)
def test_all_options_at_random(
    drawn: Any, dtype: Any, profile: str, flag: bool
) -> None:
    op, x_shape, w_shape = drawn
    rng = np.random.default_rng(math.prod(x_shape) + math.prod(w_shape))
    x = small_integers(rng, x_shape, dtype)
    w = small_integers(rng, w_shape, dtype)
    graph = one_op(op, x, w)
    (right,) = evaluate(graph, x, w)
    theirs = np.asarray(in_jax(op, x, w))
    np.testing.assert_array_equal(right, theirs)
    assert_exact(graph, (x, w), PROFILES[profile], flag)


# --- what is planned --------------------------------------------------------


def plain(rank: int, **changes: Any) -> Conv:
    ones = (1,) * rank
    given = {
        "strides": ones,
        "padding": ((0, 0),) * rank,
        "lhs_dilation": ones,
        "rhs_dilation": ones,
        **changes,
    }
    return Conv(**given)


def test_no_patches_are_stored() -> None:
    x, w = np.ones((8, 16, 28, 28), F32), np.ones((32, 16, 5, 5), F32)
    program = plan_graph(one_op(plain(2), x, w))
    assert len(program.body) == 1 and program.arena_bytes == 0
    cropped = plain(2, padding=((-1, 0), (-2, -3)), strides=(2, 1))
    program = plan_graph(one_op(cropped, x, w))
    assert len(program.body) == 1 and program.arena_bytes == 0
    padded = plan_graph(one_op(plain(2, padding=((2, 2), (2, 2))), x, w))
    assert len(padded.body) == 2 and padded.arena_bytes == 8 * 16 * 32 * 32 * 4


def test_depthwise_convolutions_take_no_tiles() -> None:
    x, w = np.ones((4, 64, 20, 20), F32), np.ones((64, 1, 3, 3), F32)
    op = plain(2, feature_group_count=64)
    for profile in PROFILES.values():
        (kernel,) = plan_graph(one_op(op, x, w), profile).kernels.values()
        assert kernel.name.startswith("matmul_direct")


def test_many_sizes_share_one_generic_kernel() -> None:
    names = set()
    for channels, size, made in ((3, 8, 5), (7, 11, 7), (5, 12, 6)):
        x, w = (
            np.ones((2, channels, size, size), F32),
            np.ones((made, channels, 3, 2), F32),
        )
        names |= set(plan_graph(one_op(plain(2), x, w), generic=True).kernels)
    assert len(names) == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_long_sums_are_exact(profile: str) -> None:
    x, w = np.ones((1, 70, 1003), F32), np.ones((3, 70, 1000), F32)
    (got,) = run_graph(one_op(plain(1), x, w), (x, w), PROFILES[profile])
    assert got.shape == (1, 3, 4) and (got == 70000).all()


@pytest.mark.parametrize("profile", PROFILES)
def test_channels_last_is_read_as_it_stands(profile: str) -> None:
    rng = rng_of("channels")
    x = small_integers(rng, (2, 9, 10, 8), F32)
    w = small_integers(rng, (3, 3, 8, 12), F32)

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    graph = poot.make_graph(convolved)(x, w)
    assert_exact(graph, (x, w), PROFILES[profile])


def gradients(x: Any, w: Any, ct: Any, strides: Any, pads: Any, groups: int) -> Any:
    """Those of a convolution of 2 spatial axes, which are convolutions themselves."""
    reach = [size - 1 for size in w.shape[2:]]
    back = []
    for size, made, step, window, (low, _) in zip(
        x.shape[2:], ct.shape[2:], strides, reach, pads, strict=True
    ):
        spread = (made - 1) * step + 1
        back.append((window - low, size + low - spread))
    parts = lax.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    turned = lax.transpose(parts, (0, 2, 1, 3, 4))
    turned = lax.reshape(turned, (x.shape[1], -1, *w.shape[2:]))
    dx = lax.conv_general_dilated(
        ct,
        lax.rev(turned, (2, 3)),
        (1, 1),
        back,
        lhs_dilation=strides,
        feature_group_count=groups,
    )
    # Channels are the batch, and images what is contracted.
    around = []
    for size, made, step, window, (low, _) in zip(
        x.shape[2:], ct.shape[2:], strides, reach, pads, strict=True
    ):
        around.append((low, window + (made - 1) * step + 1 - size - low))
    dw = lax.conv_general_dilated(
        x,
        ct,
        (1, 1),
        around,
        rhs_dilation=strides,
        dimension_numbers=("CNHW", "IOHW", "CNHW"),
        batch_group_count=groups,
    )
    return dx, dw


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_gradients_are_convolutions(groups: int, strides: Any) -> None:
    rng = rng_of("gradients")
    x = small_integers(rng, (3, 6, 9, 8), F32)
    w = small_integers(rng, (12, 6 // groups, 3, 2), F32)
    pads = ((1, 2), (0, 1))

    def forward(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, strides, pads, feature_group_count=groups
        )

    y, pullback = jax.vjp(forward, x, w)
    ct = small_integers(rng, y.shape, F32)
    for mine, theirs in zip(
        poot.jit(lambda *xs: gradients(*xs, strides, pads, groups))(x, w, ct),
        pullback(ct),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


# --- lax --------------------------------------------------------------------

R = rng_of("conv")
X = small_integers(R, (2, 7, 8, 3), F32)
W = small_integers(R, (3, 2, 3, 4), F32)
NCHW = X.transpose(0, 3, 1, 2).copy()
OIHW = W.transpose(3, 2, 0, 1).copy()
LAST = ("NHWC", "HWIO", "NHWC")
PAIRS = ((1, 2), (0, 1))


def transposed(padding: Any, strides: Any = (2, 3), **options: Any) -> Any:
    return lambda m, x, w: m.conv_transpose(x, w, strides, padding, **options)


CALLS: tuple[Any, ...] = (
    *(
        lambda m, x, w, pad=pad, step=step: m.conv_general_dilated(
            x, w, step, pad, rhs_dilation=(2, 1), dimension_numbers=LAST
        )
        for pad in ("SAME", "VALID", "SAME_LOWER", PAIRS)
        for step in ((1, 1), (2, 3))
    ),
    lambda m, x, w: m.conv_general_dilated(
        x, w, (1, 2), PAIRS, (2, 1), dimension_numbers=("NHWC", "HWIO", "CHWN")
    ),
    lambda m, x, w: m.conv_general_dilated(
        x,
        w,
        (1, 1),
        "same",
        dimension_numbers=m.ConvDimensionNumbers(
            (0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)
        ),
        precision=(m.Precision.HIGHEST, m.Precision.DEFAULT),
    ),
    *(transposed(pad) for pad in ("SAME", "VALID", PAIRS)),
    *(transposed(pad, (1, 1), rhs_dilation=(2, 2)) for pad in ("SAME", "VALID")),
    transposed(PAIRS, use_consistent_padding=True),
    transposed("SAME", dimension_numbers=LAST, precision="highest"),
    lambda m, x, w: m.conv_general_dilated_patches(
        x, (2, 3), (1, 2), PAIRS, dimension_numbers=("NHWC", "OIHW", "NHWC")
    ),
)


def same_as_jax(call: Any, *operands: Any) -> None:
    theirs = call(jax.lax, *operands)
    for mine in (call(lax, *operands), poot.jit(lambda *xs: call(lax, *xs))(*operands)):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_channels_last_as_in_jax(number: int) -> None:
    same_as_jax(CALLS[number], X, W)


def test_canonical_axes_as_in_jax() -> None:
    same_as_jax(lambda m, x, w: m.conv(x, w, (2, 1), "SAME"), NCHW, OIHW)
    same_as_jax(
        lambda m, x, w: m.conv_with_general_padding(
            x, w, (2, 1), PAIRS, (1, 2), (2, 1)
        ),
        NCHW,
        OIHW,
    )
    same_as_jax(
        lambda m, x: m.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME"), NCHW
    )
    wide = transposed("SAME", (2, 2), transpose_kernel=True)
    same_as_jax(wide, X, W.swapaxes(2, 3).copy())


def test_wider_sums() -> None:
    small = NCHW.astype(np.int8), OIHW.astype(np.int8)
    same_as_jax(
        lambda m, x, w: m.conv(x, w, (1, 1), "SAME", preferred_element_type=I32), *small
    )
    x, w = np.full((1, 4096, 1), 16, np.float16), np.full((1, 4096, 1), 16, np.float16)
    found = lax.conv(x, w, (1,), "VALID", preferred_element_type=F32)
    assert found.item() == 1048576


def test_dimension_numbers() -> None:
    numbers = lax.conv_dimension_numbers(X.shape, W.shape, LAST)
    assert numbers == jax.lax.conv_dimension_numbers(X.shape, W.shape, LAST)
    assert lax.conv_dimension_numbers(X.shape, W.shape, numbers) is numbers
    assert lax.conv_dimension_numbers((1, 2), (1, 2), None).rhs_spec == (0, 1)


REFUSED: tuple[Any, ...] = (
    (lambda: lax.conv(NCHW, OIHW, (1,), "SAME"), ShapeError, "1 strides"),
    (lambda: lax.conv(NCHW, OIHW[:, :2], (1, 1), "SAME"), ShapeError, "feature groups"),
    (lambda: lax.conv(NCHW, OIHW, (1, 0), ((0, 0),) * 2), ShapeError, "1 or more"),
    (lambda: lax.conv(NCHW, OIHW, (1, 1), "REFLECT"), ArgumentError, "SAME_LOWER"),
    (lambda: lax.conv(NCHW, OIHW.astype(I32), (1, 1), "SAME"), DTypeError, "f32, i32"),
    (
        lambda: lax.conv_general_dilated(NCHW, OIHW, (1, 1), "SAME", (2, 2)),
        ArgumentError,
        "conv_transpose",
    ),
    (
        lambda: lax.conv_general_dilated(NCHW, OIHW, (1, 1), ((-9, 0), (0, 0))),
        ShapeError,
        "makes spatial axis 0 of size 7 negative",
    ),
    (
        lambda: lax.conv_dimension_numbers(X.shape, W.shape, ("NHWC", "HWIO", "NHHC")),
        ArgumentError,
        "'NHHC' takes each of 'NCHW' once",
    ),
    (
        lambda: lax.conv_dimension_numbers(X.shape, W.shape, "NHWC"),
        ArgumentError,
        "three",
    ),
    (
        lambda: lax.conv_transpose(X, W, (1, 1), "SAME_LOWER"),
        ArgumentError,
        "takes SAME",
    ),
    (
        lambda: lax.conv(NCHW, OIHW, (1, 1), "SAME", precision="exact"),
        ArgumentError,
        "precision is 'exact'",
    ),
    (
        lambda: lax.conv(NCHW, OIHW, (1, 1), "SAME", preferred_element_type=I32),
        DTypeError,
        "f32 operands do not accumulate to i32",
    ),
)


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refusals(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_groups_of_one_kind_only() -> None:
    types = (TensorType((4, 4, 5), as_dtype(F32)), TensorType((4, 2, 1), as_dtype(F32)))
    with pytest.raises(ShapeError, match="one of the two must be 1"):
        plain(1, feature_group_count=2, batch_group_count=2).infer(*types)
