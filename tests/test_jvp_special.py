"""Forward-mode rules where conventions matter, and what they are made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import NoDerivativeError
from poot.core.op import Op
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Unary,
    UnaryOp,
)
from poot.core.ops.index_dims import ScatterDims
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.scatter import (
    Scatter,
    ScatterMode,
    ScatterOp,
)
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.interpreters.array import Array
from poot.interpreters.derivatives import jvp as derivative
from poot.interpreters.jvp.rules import jvp
from tests.jvp_runs import (
    Application,
    Numbers,
    by_jax,
    on_the_oracle,  # noqa: F401 (a fixture)
    pushed,
)
from tests.mpmath_functions import elementwise
from tests.numerics import rng_of

_U, _B = UnaryOp, BinaryOp
INF, NAN = np.inf, np.nan
pytestmark = pytest.mark.usefixtures("on_the_oracle")


def floats(*values: Any) -> Numbers:
    return np.array(values, np.float32)


def literal(x: float) -> Scalar:
    return Scalar.of(x, dtypes.float32)


def slopes(op: Op, *operands: Numbers) -> list[Numbers]:
    """The tangents of an elementwise op for tangents of ones, by one operand each."""
    made = []
    for place in range(len(operands)):
        alone = [
            np.ones_like(x) if i == place else None for i, x in enumerate(operands)
        ]
        (tangent,) = pushed(op, operands, alone)
        made.append(np.zeros_like(operands[0]) if tangent is None else tangent)
    return made


def jacobian(op: Op, x: Numbers) -> Numbers:
    """Row i: the tangents of all results where element i has tangent 1."""
    made = []
    for tangent in directions(x):
        (moved,) = pushed(op, [x], [tangent])
        assert moved is not None
        made.append(moved.ravel())
    return np.stack(made)


def directions(x: Numbers) -> Iterator[Numbers]:
    """Tangents of which each has one 1."""
    for row in np.eye(x.size, dtype=x.dtype):
        yield row.reshape(x.shape)


# --- as JAX -----------------------------------------------------------------


def window(member: WindowOp, *axes: tuple[int, int]) -> ReduceWindow:
    sizes, steps = zip(*axes, strict=True)
    ones, none = (1,) * len(axes), ((0, 0),) * len(axes)
    return ReduceWindow(member, sizes, steps, none, ones, ones)


UNARY_POINTS: dict[UnaryOp, tuple[float, ...]] = {
    _U.ABS: (0.0, -0.0, 2, -2),
    _U.SQRT: (0.0, 4, INF),
    _U.RSQRT: (0.0, 4, INF),
    _U.CBRT: (0.0, -8, INF),
    _U.RECIP: (0.0, 2, INF),
    _U.EXP: (-INF, 0, INF),
    _U.LOG: (0.0, 2, INF),
    _U.LOG1P: (-1, 0, INF),
    _U.EXPM1: (-INF, 0, INF),
    _U.ASIN: (-1, 0, 1),
    _U.ACOS: (-1, 0, 1),
    _U.ACOSH: (1, 2, INF),
    _U.ATANH: (-1, 0, 1),
    _U.ATAN: (-INF, 1, INF),
    _U.ASINH: (-INF, 1, INF),
    _U.TANH: (-100, 0, 100, INF),
    _U.ERF: (-INF, 0, INF),
    _U.ERF_INV: (-1, 0, 1),
    _U.SIGN: (0, 3),
    _U.FLOOR: (0.5, 1),
}
BINARY_POINTS: dict[BinaryOp, tuple[tuple[float, float], ...]] = {
    _B.MAX: ((3, 3), (1, 2), (0.0, -0.0), (NAN, 1), (INF, INF)),
    _B.MIN: ((3, 3), (1, 2), (0.0, -0.0), (NAN, 1), (INF, INF)),
    _B.HYPOT: ((0, 0), (0, -2), (INF, 1), (3, -4), (-INF, INF)),
    _B.DIV: ((1, 0), (-1, 0), (0, 0), (3, INF)),
    _B.REM: ((7.5, 2), (-7.5, 2), (7, -2)),
    _B.ATAN2: ((0, 0), (0, 2), (2, 0), (-1, -2)),
    _B.COPYSIGN: ((0.0, 1), (-0.0, -1), (2, -0.0), (-2, -3)),
    _B.POW: ((0, 1), (0, 2), (-2, 3), (2, 0), (0, 0.5)),
}
WHOLE: tuple[tuple[Op, Numbers], ...] = (
    (Reduce(ReduceOp.MAX, 0), floats(1, 3, 3, 0, 3)),
    (Reduce(ReduceOp.MIN, 1, True), floats(2, 0, 0, 1, 1, 1).reshape(2, 3)),
    (Reduce(ReduceOp.MAX, 0), floats(1, NAN, 3)),
    (Reduce(ReduceOp.PROD, 0), floats(2, 0, 3, 4)),
    (Reduce(ReduceOp.PROD, 0), floats(2, 0, 3, 0)),
    (Cumulative(CumulativeOp.PROD, 0), floats(2, 0, 3, 4, 0, 5)),
    (Cumulative(CumulativeOp.PROD, 0, True), floats(2, 0, 3, 4, 0, 5)),
    (window(WindowOp.MAX, (3, 1)), floats(1, 1, 1, 0, 2, 2)),
    (window(WindowOp.MIN, (2, 1), (2, 2)), np.ones((3, 4), np.float32)),
)


def special_applications() -> Iterator[Application]:
    for unary, points in UNARY_POINTS.items():
        x = floats(*points)
        yield Unary(unary), [x], [np.ones_like(x)]
    for binary, pairs in BINARY_POINTS.items():
        a, b = (floats(*side) for side in zip(*pairs, strict=True))
        yield Binary(binary), [a, b], [np.ones_like(a), None]
        yield Binary(binary), [a, b], [None, np.ones_like(a)]
    for op, x in WHOLE:
        # Of a generic tangent no other weights make the same sums.
        yield op, [x], [rng_of(str(op)).uniform(1, 2, x.shape).astype(x.dtype)]


def test_special_points_as_jax() -> None:
    applications = list(special_applications())
    for application, expected in zip(applications, by_jax(applications), strict=True):
        op, operands, _ = application
        (found,), (wanted,) = pushed(*application), expected
        assert wanted is not None
        found = np.zeros_like(wanted) if found is None else found
        np.testing.assert_allclose(
            found, wanted, 1e-5, 1e-6, err_msg=f"{op} at {operands}"
        )


# --- by hand ----------------------------------------------------------------


def test_power_where_base_or_exponent_is_0() -> None:
    base, exponent = floats(0, 0, 0, 0, 0), floats(0, 1, 2, 3, 0.5)
    by_base, by_exponent = slopes(Binary(_B.POW), base, exponent)
    assert by_base.tolist() == [0, 1, 0, 0, INF]
    assert by_exponent.tolist() == [0, 0, 0, 0, 0]
    for power, wanted in ((0, 0), (1, 1), (2, 0), (3, 0), (-1, -INF)):
        x, t = (Array.from_numpy(floats(v)) for v in (0, 1))
        operands = (x, literal(power))
        _, (tangent,) = jvp[Binary[_B.POW]](Binary(_B.POW), operands, (t, None))
        assert tangent is not None and tangent.numpy().tolist() == [wanted]


def scalar(x: float) -> Array:
    return Array.from_numpy(np.array(float(x)))


def second(op: Op, *operands: float) -> list[list[float]]:
    """The second derivatives of an op of f64 scalars."""
    xs = tuple(scalar(x) for x in operands)
    ways = [tuple(scalar(number) for number in row) for row in np.eye(len(xs))]

    def along(way: tuple[Array, ...]) -> Callable[..., Any]:
        return lambda *xs: derivative(op.bind, xs, way)[1]

    return [
        [derivative(along(one), xs, other)[1].item() for one in ways] for other in ways
    ]


@pytest.mark.parametrize("member", [m for m in BinaryOp if m in BINARY_POINTS])
@pytest.mark.parametrize("place", [0, 1])
def test_literals(member: BinaryOp, place: int) -> None:
    """A literal as an operand means what an array of no axes does."""
    op, x = Binary(member), Array.from_numpy(floats(1.5, -2, 0.25))
    for number in (0.0, 0.5, 3.0):
        tangents = []
        for given in (Array.from_numpy(floats(number)[0, ...]), literal(number)):
            operands, moved = [x, x], [x, x]
            operands[place], moved[place] = given, None
            _, (tangent,) = jvp[op.key](op, operands, moved)
            tangents.append(None if tangent is None else tangent.numpy())
        np.testing.assert_array_equal(*tangents)


def test_second_derivatives_of_powers() -> None:
    power = Binary(_B.POW)
    for exponent, wanted in ((0, 0), (1, 0), (2, 2), (3, 0)):
        assert second(power, 0, exponent)[0][0] == wanted
    np.testing.assert_allclose(
        second(power, 2, 0), [[0, 0.5], [0.5, np.log(2) ** 2]], 1e-15, 1e-15
    )


@pytest.mark.parametrize(
    "op", [Reduce(ReduceOp.PROD, 0), Cumulative(CumulativeOp.PROD, 0)], ids=str
)
def test_second_derivatives_of_products_of_zeros(op: Op) -> None:
    """Each is the product of all elements but two."""
    x = np.array([2.0, 0.0, 3.0, 0.0])
    for places in itertools.combinations(range(4), 2):
        one, other = (Array.from_numpy(np.eye(4)[place]) for place in places)

        def first(x: Any, one: Array = one) -> Any:
            return derivative(op.bind, (x,), (one,))[1]

        _, found = derivative(first, (Array.from_numpy(x),), (other,))
        assert np.ravel(found.numpy())[-1] == np.delete(x, places).prod()


def test_hypot_and_atan2_do_not_overflow() -> None:
    a, b = floats(3e30, 3e-30), floats(4e30, 4e-30)
    by_a, by_b = slopes(Binary(_B.HYPOT), a, b)
    np.testing.assert_allclose((by_a, by_b), [[0.6] * 2, [0.8] * 2], 1e-6)
    by_a, by_b = slopes(Binary(_B.ATAN2), a, b)
    np.testing.assert_allclose(by_a, [4 / 25e30, 4 / 25e-30], 1e-6)
    np.testing.assert_allclose(by_b, [-3 / 25e30, -3 / 25e-30], 1e-6)


def test_slopes_far_from_0() -> None:
    """Where squares overflow, or the result has rounded to its limit."""
    for member, x, wanted in (
        (_U.ASINH, 1e30, 1e-30),
        (_U.ACOSH, 1e30, 1e-30),
        (_U.EXPM1, -20, np.exp(-20.0)),
        (_U.ERFC, 8, -2 / np.sqrt(np.pi) * np.exp(-64.0)),
    ):
        (found,) = slopes(Unary(member), floats(x))
        np.testing.assert_allclose(found, [wanted], 1e-5)
    (found,) = slopes(Unary(_U.ASINH), np.array([300], np.float16))
    np.testing.assert_allclose(found, [1 / 300], 1e-3)


def test_whole_quotients() -> None:
    """The quotient that the remainder leaves, though a / b rounds up to the next."""
    a, b = floats(np.nextafter(np.float32(9), np.float32(0)), 7), floats(3, INF)
    _, by_b = slopes(Binary(_B.REM), a, b)
    assert by_b.tolist() == [-2, 0]


def test_clamp_at_its_bounds() -> None:
    low, high = floats(*[-1] * 5), floats(*[1] * 5)
    found = slopes(Clamp(), low, floats(-2, -1, 0, 1, 2), high)
    assert [each.tolist() for each in found] == [
        [1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1],
    ]


def test_products_of_nothing() -> None:
    empty = np.ones((2, 0), np.float32)
    (moved,) = pushed(Reduce(ReduceOp.PROD, 1), [empty], [empty])
    assert moved is not None and moved.tolist() == [0, 0]


def test_products_that_overflow_half_way() -> None:
    """In f16 as in the product itself, which has f32 on the way."""
    x = np.array([300, 300, 1e-3, 1e-3], np.float16)
    found = jacobian(Reduce(ReduceOp.PROD, 0), x)[:, 0]
    exact = x.astype(np.float64).prod() / x.astype(np.float64)
    np.testing.assert_allclose(found, exact, 1e-2)


@pytest.mark.parametrize("reverse", [False, True])
def test_logsumexp_of_infinities_and_large_numbers(reverse: bool) -> None:
    """The softmax of all so far, from the left; from the right with `reverse`."""
    op = Cumulative(CumulativeOp.LOGSUMEXP, 0, reverse)
    x = floats(-INF, -INF, 0, 1000, 0, 1000, -1000)
    wanted = np.zeros((7, 7))
    for place in range(7):
        so_far = slice(place, 7) if reverse else slice(0, place + 1)
        largest = max(x[so_far])
        with np.errstate(invalid="ignore"):
            parts = np.exp(x[so_far].astype(np.float64) - largest)
        wanted[so_far, place] = parts / parts.sum()
    if not reverse:
        # All that there is are equal infinities.
        wanted[:2, :2] = [[1, 1], [0, 1]]
    np.testing.assert_allclose(jacobian(op, x), wanted, 1e-4, 1e-30)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_extrema_take_the_first(reverse: bool) -> None:
    x = floats(1, 1, 3, 3, 2, 4)
    wanted = [0, 0, 2, 2, 2, 5]
    if reverse:
        x, wanted = x[::-1].copy(), [5 - place for place in wanted[::-1]]
    for member, sign in ((CumulativeOp.MAX, 1), (CumulativeOp.MIN, -1)):
        found = jacobian(Cumulative(member, 0, reverse), sign * x)
        assert found.T.argmax(1).tolist() == wanted
        assert found.sum(0).tolist() == [1] * 6


ELEMENTS = ScatterDims((), (0,), (0,))


def scattered(member: ScatterOp, **promises: bool) -> Scatter:
    return Scatter(member, ELEMENTS, ScatterMode.DROP, **promises)


def test_scattered_extrema_share_ties() -> None:
    """One update goes nowhere, and one meets a NaN."""
    x, indices = floats(5, 1, 2, NAN), np.array([[0], [0], [1], [9], [3]], np.int32)
    for member, sign in ((ScatterOp.MAX, 1), (ScatterOp.MIN, -1)):
        updates = sign * floats(5, 4, 7, 7, 1)
        op = scattered(member)
        of_x = [
            pushed(op, [sign * x, indices, updates], [t, None, None])[0]
            for t in directions(x)
        ]
        assert np.diag(np.stack(of_x)).tolist() == [0.5, 0, 1, 0.5]  # type: ignore[arg-type]
        of_updates = [
            pushed(op, [sign * x, indices, updates], [None, None, t])[0]
            for t in directions(updates)
        ]
        summed = np.stack(of_updates)  # type: ignore[arg-type]
        assert summed.sum(1).tolist() == [0.5, 0, 1, 0, 0.5]


def test_scattered_products() -> None:
    x, indices = floats(5, 0, 2), np.array([[0], [1], [9]], np.int32)
    updates, ones = floats(3, 4, 7), np.ones(3, np.float32)
    op = scattered(ScatterOp.MUL, unique_indices=True)
    (of_x,) = pushed(op, [x, indices, updates], [ones, None, None])
    (of_updates,) = pushed(op, [x, indices, updates], [None, None, ones])
    assert of_x is not None and of_x.tolist() == [3, 4, 1]
    assert of_updates is not None and of_updates.tolist() == [5, 0, 0]
    twice = np.zeros((3, 1), np.int32)
    (of_x,) = pushed(scattered(ScatterOp.MUL), [x, twice, updates], [ones, None, None])
    assert of_x is not None and of_x.tolist() == [84, 1, 1]
    with pytest.raises(NoDerivativeError, match="unique_indices=True"):
        pushed(scattered(ScatterOp.MUL), [x, twice, updates], [None, None, ones])


def test_the_last_update_has_the_tangent() -> None:
    x, indices = floats(5, 1), np.array([[0], [0]], np.int32)
    (moved,) = pushed(
        scattered(ScatterOp.SET), [x, indices, x], [floats(1, 1), None, floats(2, 3)]
    )
    assert moved is not None and moved.tolist() == [3, 1]


def test_what_a_gather_fills_in_has_no_tangent() -> None:
    x, indices = floats(1, 2, 3), np.array([2, 7, -1], np.int32)
    (moved,) = pushed(Gather(0, GatherMode.FILL), [x, indices], [x, None])
    assert moved is not None and moved.tolist() == [3, 0, 0]


def test_nextafter_says_what_to_do() -> None:
    with pytest.raises(NoDerivativeError, match="stop the gradient"):
        slopes(Binary(_B.NEXTAFTER), floats(1), floats(2))


@pytest.mark.parametrize("to", dtypes.ALL, ids=str)
def test_casts(to: DType) -> None:
    x = floats(1.5, -2)
    (moved,) = pushed(Cast(to), [x], [x])
    if to.is_differentiable:
        assert moved is not None and moved.tolist() == [1.5, -2]
    else:
        assert moved is None


def _trigamma(x: Any) -> Any:
    if x <= 0 and x == mpmath.floor(x):
        return mpmath.inf
    if x > 0:
        return mpmath.polygamma(1, x) if x < 1e8 else 1 / x + 1 / (2 * x**2)
    return (mpmath.pi / mpmath.sinpi(x)) ** 2 - mpmath.polygamma(1, 1 - x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trigamma(dtype: Any) -> None:
    sizes = np.geomspace(1e-15, 1e15, 61)
    x = np.concatenate(
        [sizes, np.linspace(-8.95, 12.05, 90), [0.0, -0.0, -1, -7, 1, 0.5, -INF, NAN]]
    ).astype(dtype)
    (found,) = slopes(Unary(_U.DIGAMMA), x)
    finite = np.isfinite(x)
    wanted = elementwise(_trigamma)(x[finite])
    # Near poles left of 0 the sine is as exact as its argument.
    np.testing.assert_allclose(found[finite], wanted, 12 * np.finfo(dtype).eps)
    assert np.isnan(found[~finite]).all()
