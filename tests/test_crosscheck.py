"""poot.crosscheck: device, oracle and JAX on one graph, and what the report says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot import lax
from poot import numpy as pnp
from poot.core.errors import ArgumentError, CheckError, CrossCheckError
from poot.core.op import PrimitiveKey, primitive_keys
from poot.core.ops.elementwise import Unary, UnaryOp
from poot.core.oracle import impl
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_oracle import OracleBackend
from poot.testing import ulps
from poot.testing._distance import absolute, relative
from poot.testing._jax_run import FLUSHES, JaxRun
from poot.testing._jax_table import jax as jax_rules

PRIMITIVES = [key for key in primitive_keys() if not key.op.composite]
SMALL = np.array([0.5, -1.25, 3.0], np.float32)


@pytest.fixture
def jax_is_there() -> None:
    pytest.importorskip("jax")


@pytest.mark.parametrize("key", PRIMITIVES, ids=str)
def test_every_primitive_has_a_rule(key: PrimitiveKey) -> None:
    assert JaxRun is not None
    assert key in jax_rules


# --- distances --------------------------------------------------------------


def distances(measure: Any, pairs: list[tuple[Any, Any]], dtype: Any) -> list[float]:
    a, b = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    return measure(a, b).tolist()


def test_distances_of_floats() -> None:
    inf, nan, next_one = np.inf, np.nan, np.nextafter(np.float32(1), np.float32(2))
    pairs = [(1, next_one), (0.0, -0.0), (nan, nan), (nan, 1), (inf, inf), (inf, -inf)]
    assert distances(ulps, pairs, np.float32)[:4] == [1, 0, 0, inf]
    assert distances(ulps, pairs, np.float32)[4:] == [0, 2 * 0x7F800000]
    assert distances(absolute, pairs, np.float32) == [2.0**-23, 0, 0, inf, 0, inf]
    assert distances(relative, [(1, 0), (0, 0), (3, 2)], np.float32) == [inf, 0, 0.5]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8, np.bool_])
def test_distances_of_whole_numbers(dtype: Any) -> None:
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min,) * 2
    if dtype != np.bool_:
        high = np.iinfo(dtype).max
    for measure in (ulps, absolute):
        found = distances(measure, [(low, high), (high, low), (high, high)], dtype)
        assert found == [float(int(high) - int(low))] * 2 + [0]


# --- reports ----------------------------------------------------------------


def test_three_executors(jax_is_there: None) -> None:
    def function(x: Any, scale: Any) -> Any:
        return {"sum": (x * scale).sum(), "parts": [pnp.exp(x), x > 0]}

    report = poot.crosscheck(function)(SMALL, 2.0)
    assert [output.name for output in report.outputs] == [
        "result['parts'][0]",
        "result['parts'][1]",
        "result['sum']",
    ]
    for output in report.outputs:
        assert list(output.values) == ["device", "oracle", "jax"]
        pairs = [str(comparison) for comparison in output.comparisons]
        assert pairs == ["device - oracle", "device - jax", "jax - oracle"]
        assert output.notes == ()
    np.testing.assert_array_equal(report.outputs[1].values["jax"], SMALL > 0)
    assert report.raise_if(ulp=4, relative=1e-6, absolute=1e-5) is report
    assert report.graph == poot.make_graph(function)(SMALL, 2.0)
    assert report.without_jax is None


def test_report_prints_as_a_table(jax_is_there: None) -> None:
    text = repr(poot.crosscheck(lambda x: x + 1)(SMALL)).splitlines()
    assert text[0].startswith("crosscheck of 1 outputs, device: ")
    assert text[1] == "output  type    pair             ulp  absolute  relative  at"
    assert text[2].split() == ["result", "f32[3]", "device", "-", "oracle", *"000"]
    assert len(text) == 5


def wrong_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the oracle's exp be nine ulps off at element 1."""
    key = Unary[UnaryOp.EXP]
    right = impl[key]

    def rule(op: Any, arithmetic: Any, x: Any) -> Any:
        result = right(op, arithmetic, x)
        for _ in range(9):
            result[1] = np.nextafter(result[1], np.float32(np.inf))
        return result

    monkeypatch.setattr(impl, "_rules", {**impl._rules, key: rule})


def test_raise_if_names_output_index_and_both_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong_exp(monkeypatch)
    report = poot.crosscheck(lambda x: (x, pnp.exp(x)))(SMALL)
    right = np.exp(SMALL)[1]
    with pytest.raises(
        CrossCheckError,
        match=r"result\[1\] \(f32\[3\]\) is \d+ ulp apart at \[1\], 4 allowed: device "
        r"has np.float32\(0.2865\d*\), oracle has np.float32\(0.2865\d*\)",
    ):
        report.raise_if(ulp=4)
    for limits in ({"absolute": 1e-8}, {"relative": 1e-8}, {"ulp": 20, "absolute": 0}):
        with pytest.raises(CrossCheckError, match=r"result\[1\]"):
            report.raise_if(**limits)
    assert report.raise_if(ulp=20) is report
    found = report.outputs[1].comparisons[0]
    assert found.ulp is not None and found.ulp.index == (1,)
    assert abs(found.ulp.one - right) < abs(found.ulp.other - right)


def test_without_a_device(jax_is_there: None) -> None:
    use_backend(OracleBackend())
    poot.clear_caches()
    try:
        report = poot.crosscheck(lambda x: pnp.exp(x))(SMALL)
    finally:
        poot.clear_caches()
        use_backend(None)
    assert "device: OracleDevice" in repr(report)
    assert report.outputs[0].comparisons[0].ulp.value == 0


def test_raise_if_takes_a_limit() -> None:
    with pytest.raises(ArgumentError, match="give ulp, absolute or relative"):
        poot.crosscheck(lambda x: x)(SMALL).raise_if()


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poot.testing._crosscheck.optional_jax", lambda: None)
    report = poot.crosscheck(lambda x: x + 1)(SMALL)
    assert "without JAX: it is not installed; `pip install" in repr(report)
    (output,) = report.outputs
    assert [str(each) for each in output.comparisons] == ["device - oracle"]
    report.raise_if(ulp=0)


# --- where JAX means something else -----------------------------------------


@pytest.mark.parametrize(
    ("function", "operands", "reason"),
    [
        (lax.div, (np.int32([7]), np.int32([0])), "divides integers by zero"),
        (lax.rem, (np.uint32([7]), np.uint32([0])), "divides integers by zero"),
        (pnp.power, (np.int32([2]), np.int32([70])), "JAX reads six bits"),
        (pnp.gcd, (np.int32([-(2**31)]), np.int32([4])), "gcd of the lowest integer"),
        (lax.mul, (np.float32([1e-40]), np.float32([2])), "subnormal numbers"),
        (lambda x: x.astype(bool), (np.float32([1e-45]),), "subnormal numbers"),
    ],
)
def test_deviations_are_marked(
    function: Any, operands: Any, reason: str, jax_is_there: None
) -> None:
    report = poot.crosscheck(lambda *xs: (function(*xs), xs[0]))(*operands)
    marked, plain = report.outputs
    assert len(marked.notes) == 1
    assert reason in marked.notes[0] and "test_crosscheck.py" in marked.notes[0]
    assert plain.notes == ()
    assert f"* result[0]: {marked.notes[0]}" in repr(report)
    report.raise_if(ulp=4)


def test_a_subnormal_result_is_marked_where_the_device_keeps_it(
    jax_is_there: None,
) -> None:
    report = poot.crosscheck(lax.exp)(np.float32([-88]))
    (output,) = report.outputs
    kept = poot.devices()[0].info.keeps_subnormals32
    assert [FLUSHES in note for note in output.notes] == [True] * kept
    report.raise_if(ulp=4)


def test_what_depends_on_a_deviation_is_marked(jax_is_there: None) -> None:
    def function(x: Any) -> Any:
        return lax.div(x, x) * 3, x * 3

    report = poot.crosscheck(function)(np.int32([0, 5]))
    assert [len(output.notes) for output in report.outputs] == [1, 0]


# --- arguments of every kind ------------------------------------------------


def test_arguments_and_constants_of_every_kind(jax_is_there: None) -> None:
    table = pnp.arange(6.0).reshape(2, 3)
    frozen = np.array([1, 2, 3])

    def function(tree: Any, flag: Any, count: Any, *, axis: int) -> Any:
        x = pnp.where(flag, tree["x"], -tree["x"]) + table + frozen
        return x.sum(axis) * count

    jitted = poot.jit(function, static_argnames="axis")
    report = poot.crosscheck(jitted)({"x": np.ones((2, 3))}, True, np.int64(3), axis=1)
    report.raise_if(ulp=1)
    np.testing.assert_array_equal(report.outputs[0].values["device"], [36, 63])


def test_donated_arguments(jax_is_there: None) -> None:
    x = poot.device_put(SMALL)
    report = poot.crosscheck(poot.jit(lambda x: x * 2, donate_argnums=0))(x)
    np.testing.assert_array_equal(report.outputs[0].values["oracle"], SMALL * 2)
    report.raise_if(ulp=0)
    assert x.is_deleted()


def test_64_bits(jax_is_there: None) -> None:
    with poot.config.override(enable_x64=True):
        report = poot.crosscheck(lambda x, y: (x * x, y + 1))(
            np.array([1e200, 2.0]), np.array([2**62])
        )
    assert [str(output.type) for output in report.outputs] == ["f64[2]", "i64[1]"]
    report.raise_if(ulp=0)


def test_outputs_without_elements(jax_is_there: None) -> None:
    report = poot.crosscheck(lambda x: x[:0])(SMALL)
    assert report.outputs[0].comparisons[0].ulp is None
    assert report.raise_if(ulp=0) is report
    assert repr(report).splitlines()[2].split()[-3:] == ["-", "-", "-"]


def test_needs_numbers() -> None:
    with pytest.raises(ArgumentError, match="crosscheck runs on numbers"):
        poot.crosscheck(lambda x: x)(poot.ShapeDtypeStruct((3,), np.float32))


def test_failed_checks_raise() -> None:
    with poot.config.override(check_bounds=True), pytest.raises(CheckError):
        poot.crosscheck(lambda x, i: x[i])(SMALL, np.int32(7))
