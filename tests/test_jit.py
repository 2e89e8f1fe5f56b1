"""poot.jit: signatures, statics, donation, staged stages, passed-through results."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import (
    ArgumentError,
    CheckError,
    DeletedArrayError,
    DonationError,
    RangeError,
)
from tests.backends import each_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("each_backend")

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def counted(function: Any, **options: Any) -> tuple[Any, list[int]]:
    """The jitted function and the list that grows by each trace of it."""
    traces: list[int] = []

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return function(*args, **kwargs)

    return poot.jit(counting, **options), traces


# --- signatures -------------------------------------------------------------


def test_one_trace_a_signature() -> None:
    f, traces = counted(lambda x, y: x * y)
    x = poot.device_put(X)
    for argument in (x, x + 1, X, X.astype(np.float64)):
        np.testing.assert_array_equal(f(argument, argument), np.asarray(argument) ** 2)
    assert len(traces) == 1
    f(x[0], x[0])
    f(x.astype(np.float16), x)
    assert len(traces) == 3
    for number in (2.0, 3.0, -1.5):
        np.testing.assert_array_equal(f(x, number), X * np.float32(number))
    assert len(traces) == 4
    f(x, np.float32(2))
    f(x, np.float32(3))
    f(x, np.float64(3))
    assert len(traces) == 5
    f(x, 2)
    f(x, True)
    f(x, poot.device_put(2.0))
    assert len(traces) == 8
    with poot.config.override(enable_x64=True):
        f(x, 2)
        f(x, 3)
    assert len(traces) == 9
    f(x, 4)
    assert len(traces) == 9 and f.cache_size == 9


def test_keyword_arguments_and_defaults() -> None:
    f, traces = counted(lambda x, *, scale=2.0, shift=0.0: x * scale + shift)
    np.testing.assert_array_equal(f(X), X * 2)
    np.testing.assert_array_equal(f(X, scale=3.0), X * 3)
    np.testing.assert_array_equal(f(X, shift=1.0, scale=3.0), X * 3 + 1)
    np.testing.assert_array_equal(f(X, scale=4.0, shift=1.0), X * 4 + 1)
    assert len(traces) == 3


def test_results_passed_through_repeated_constant_and_scalar() -> None:
    table = np.array([9, 8], np.int32)
    held = poot.device_put(X)

    @poot.jit
    def f(x: Any, s: Any) -> Any:
        y = x + 1
        return x, y, y, table, held, 3, s, None, {"e": ()}, x

    x = poot.device_put(X)
    for _ in range(2):
        a, b, c, d, e, n, s, none, empty, again = f(x, 2.5)
        np.testing.assert_array_equal(a, X)
        np.testing.assert_array_equal(b, X + 1)
        np.testing.assert_array_equal(c, X + 1)
        np.testing.assert_array_equal(d, table)
        np.testing.assert_array_equal(e, X)
        np.testing.assert_array_equal(again, X)
        assert isinstance(n, poot.Array) and int(n) == 3 and n.weak_type
        assert float(s) == 2.5 and s.weak_type
        assert none is None and empty == {"e": ()}
    b.delete()
    np.testing.assert_array_equal(c, X + 1)
    x.delete()
    np.testing.assert_array_equal(a, X)


def test_no_arguments_and_no_results() -> None:
    assert poot.jit(lambda: None)() is None
    assert float(poot.jit(lambda: poot.device_put(2.0) * 3)()) == 6
    assert poot.jit(lambda x: ())(X) == ()


def test_scalars_of_every_kind() -> None:
    f = poot.jit(lambda s: s)
    for value, dtype, weak in (
        (True, np.bool_, False),
        (7, np.int32, True),
        (-2.5, np.float32, True),
        (np.float16(1.5), np.float16, False),
        (np.uint8(200), np.uint8, False),
        (np.bool_(True), np.bool_, False),
        (np.int64(5), np.int32, False),
    ):
        result = f(value)
        assert (result.dtype, result.weak_type) == (dtype, weak)
        assert result.item() == value
    with pytest.raises(RangeError, match="does not fit i32"):
        f(2**40)
    assert np.isnan(float(f(float("nan")))) and float(f(1e300)) == np.inf


def test_empty_arrays() -> None:
    f = poot.jit(lambda x: (x * 2, x.sum(axis=1), x.T @ x))
    doubled, sums, product = f(np.zeros((3, 0), np.float32))
    assert doubled.shape == (3, 0) and product.shape == (0, 0)
    np.testing.assert_array_equal(sums, np.zeros(3))


def test_many_results_of_a_large_tree() -> None:
    params = {f"w{i}": np.full(3, i, np.float32) for i in range(30)}
    double = poot.jit(lambda p: poot.tree.map(lambda w: w * 2, p))
    for _ in range(2):
        doubled = double(params)
        for name, value in params.items():
            np.testing.assert_array_equal(doubled[name], value * 2)


# --- static arguments -------------------------------------------------------


def test_static_arguments_by_number_and_by_name() -> None:
    def power(x: Any, n: int, negate: bool = False) -> Any:
        for _ in range(n - 1):
            x = x * x
        return -x if negate else x

    f, traces = counted(power, static_argnums=1, static_argnames="negate")
    np.testing.assert_array_equal(f(X, 2), X * X)
    np.testing.assert_array_equal(f(X, n=2), X * X)
    np.testing.assert_array_equal(f(X, 2, True), -X * X)
    np.testing.assert_array_equal(f(X, 2, negate=True), -X * X)
    before = len(traces)
    f(X + 1, 2)
    f(X + 1, 2, negate=True)
    assert len(traces) == before
    last = poot.jit(power, static_argnums=(-2, -1))
    np.testing.assert_array_equal(last(X, 1, True), -X)


def test_equal_statics_of_other_types_are_told_apart() -> None:
    f, traces = counted(lambda x, n: x * n, static_argnums=1)
    assert f(np.int32(2), 1).dtype == np.int32
    assert f(np.int32(2), 1.0).dtype == np.float32
    assert f(np.int32(2), True).dtype == np.int32
    assert len(traces) == 3


def test_errors_of_static_arguments() -> None:
    f = poot.jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(ArgumentError, match="static argument n is a list"):
        f(X, [1])
    with pytest.raises(ArgumentError, match="no argument 'm'; it has n, x"):
        poot.jit(lambda x, n: x, static_argnames="m")
    with pytest.raises(ArgumentError, match=r"no argument number 2; .* takes 2"):
        poot.jit(lambda x, n: x, static_argnums=2)
    with pytest.raises(ArgumentError, match="static and donated"):
        poot.jit(lambda x: x, static_argnums=0, donate_argnames="x")
    with pytest.raises(ArgumentError, match="jit takes a function, given a int"):
        poot.jit(3)  # type: ignore[call-overload]
    for name in ("explain", "draw", "tune", "crosscheck", "make_graph"):
        with pytest.raises(ArgumentError, match=f"^{name} takes a function, given a s"):
            getattr(poot, name)("a")


# --- donation ---------------------------------------------------------------


def test_a_donated_array_is_deleted_and_its_memory_reused() -> None:
    @functools.partial(poot.jit, donate_argnums=0)
    def update(state: Any, gradient: Any) -> Any:
        return state - gradient

    graph = update.trace(X, X).graph
    assert [pair.input for pair in graph.state] == [graph.inputs[0]]
    state = poot.device_put(X)
    gradient = poot.device_put(np.ones_like(X))
    for _ in range(5):
        before, state = state, update(state, gradient)
        assert before.is_deleted() and not gradient.is_deleted()
    np.testing.assert_array_equal(state, X - 5)
    with pytest.raises(DeletedArrayError, match="was donated to `update` as state"):
        before + 1
    with pytest.raises(DeletedArrayError, match="argument state of `update`"):
        update(before, gradient)
    np.testing.assert_array_equal(update(X, X), X * 0)


def test_donation_of_trees_and_by_name() -> None:
    @functools.partial(poot.jit, donate_argnames=("cache",))
    def step(x: Any, cache: Any) -> Any:
        return {"k": cache["k"] + x, "v": cache["v"] * x}, x

    cache = {"k": poot.device_put(X), "v": poot.device_put(X)}
    x = poot.device_put(X)
    new, _ = step(x, cache=cache)
    assert cache["k"].is_deleted() and cache["v"].is_deleted()
    np.testing.assert_array_equal(new["k"], X + X)
    np.testing.assert_array_equal(new["v"], X * X)
    newer, _ = step(x, new)
    assert new["k"].is_deleted()
    np.testing.assert_array_equal(newer["v"], X * X * X)


def test_an_array_is_donated_once_a_call() -> None:
    f = poot.jit(lambda a, b: a + b, donate_argnums=0)
    x = poot.device_put(X)
    with pytest.raises(DonationError, match="donated as a is given as b too"):
        f(x, x)
    assert not x.is_deleted()
    np.testing.assert_array_equal(f(x, poot.device_put(X)), X + X)


def test_donating_shared_memory_leaves_the_others_alone() -> None:
    identity = poot.jit(lambda x: x)
    update = poot.jit(lambda x: x * 0, donate_argnums=0)
    x = poot.device_put(X)
    same = identity(x)
    update(same)
    np.testing.assert_array_equal(x, X)
    weights = poot.device_put(X)
    uses = poot.jit(lambda y: y + weights)
    np.testing.assert_array_equal(uses(X), X + X)
    update(weights)
    np.testing.assert_array_equal(uses(X), X + X)
    twice = poot.jit(lambda x: (x + 1, x + 1))
    first, second = twice(X)
    update(first)
    np.testing.assert_array_equal(second, X + 1)


def test_a_donated_array_may_be_returned_and_swapped() -> None:
    f = poot.jit(lambda a, b: (a, b), donate_argnums=(0, 1))
    g = poot.jit(lambda a, b: (b + 0, a + 0), donate_argnums=(0, 1))
    for function, expected in ((f, (X, X * 2)), (g, (X * 2, X))):
        a, b = poot.device_put(X), poot.device_put(X * 2)
        for result, wanted in zip(function(a, b), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        assert a.is_deleted() and b.is_deleted()


def test_donation_that_nothing_can_use_warns_once_at_the_line_of_the_call() -> None:
    f = poot.jit(lambda x: x.sum(), donate_argnums=0)
    with pytest.warns(UserWarning, match=r"argument `x` \(f32\[2,3\]\)") as caught:
        x = poot.device_put(X)
        assert float(f(x)) == 21
    assert not x.is_deleted() and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(poot.device_put(X))


# --- stages -----------------------------------------------------------------


def test_stages_can_be_looked_at_and_run() -> None:
    def f(x: Any, scale: Any) -> Any:
        return poot.tree.map(lambda v: v * scale + 1.0, {"a": x, "b": x.T})

    traced = poot.jit(f).trace(X, 2.0)
    assert "binary[op=mul]" in str(traced.graph) and "traced f:" in str(traced)
    lowered = traced.lower()
    assert "lowered f:" in str(lowered) and isinstance(lowered.report(), str)
    assert lowered.graph.result_types == traced.graph.result_types
    compiled = lowered.compile()
    assert compiled.graph == lowered.graph
    program = compiled.program
    assert "dispatch" in str(compiled) and len(program.dispatches) >= 1
    passes = lowered.report()
    assert "fuse_pointwise: " in passes and "absorb_producer" in passes
    before, _, launches = compiled.report().partition(f"\n{len(program.dispatches)} ")
    counts = before.removeprefix(f"{passes}\n")
    assert counts.startswith(("a replay: ", "a call: ")) and "\n" not in counts
    assert launches.startswith("dispatches of ")
    for dispatch in program.dispatches:
        assert f"{dispatch.kernel.name} [{dispatch.kernel.schedule}]" in launches
        assert f"{dispatch.flops} flops" in launches
    assert repr(traced) == str(traced) and repr(compiled) == str(compiled)
    assert "words=" not in repr(program.dispatches)
    spirv = compiled.spirv()
    assert set(spirv) == {d.kernel.name for d in program.dispatches}
    assert all(words[:4] == b"\x03\x02\x23\x07" for words in spirv.values())
    result = compiled(X, 3.0)
    np.testing.assert_array_equal(result["a"], X * 3 + 1)
    np.testing.assert_array_equal(result["b"], X.T * 3 + 1)
    for wrong in ((X[0], 3.0), (X, 3), (X,)):
        with pytest.raises(ArgumentError, match="`f` was compiled for"):
            compiled(*wrong)


def test_tracing_without_numbers_then_running() -> None:
    spec = poot.ShapeDtypeStruct((2, 3), "float32")
    compiled = poot.jit(lambda x: x @ x.T).lower(spec).compile()
    np.testing.assert_array_equal(compiled(X), X @ X.T)
    with pytest.raises(ArgumentError, match=r"ShapeDtypeStruct stands for one"):
        compiled(spec)


def test_checks_raise_at_the_first_blocking_use_and_name_the_line() -> None:
    with poot.config.override(check_bounds=True):
        take = poot.jit(lambda x, i: x[i])
        x = poot.device_put(X)
        np.testing.assert_array_equal(take(x, np.array([1, -1])), X[[1, 1]])
        bad = take(x, np.array([0, 2]))
        worse = bad + 1
        for value in (worse, bad):
            with pytest.raises(CheckError, match=r"axis 0 with size 2.*test_jit\.py"):
                np.asarray(value)
        np.testing.assert_array_equal(take(x, np.array([0])), X[[0]])
        with (
            poot.config.override(sync_checks=True),
            pytest.raises(CheckError, match="axis 0"),
        ):
            take(x, 5 * np.ones(1, np.int32))


# --- the wrapper ------------------------------------------------------------


def test_decorator_with_and_without_arguments() -> None:
    @poot.jit
    def plain(x: Any) -> Any:
        """Its own words."""
        return x + 1

    @poot.jit(static_argnames="n")
    def with_arguments(x: Any, n: int = 1) -> Any:
        return x + n

    assert plain.__name__ == "plain" and plain.__doc__ == "Its own words."
    assert list(inspect.signature(with_arguments).parameters) == ["x", "n"]
    assert "plain" in repr(plain)
    np.testing.assert_array_equal(plain(X), X + 1)
    np.testing.assert_array_equal(with_arguments(X, n=2), X + 2)


@poot.jit
def doubled(x: Any) -> Any:
    return x * 2


def test_copying_and_pickling_give_the_function_itself() -> None:
    assert (
        copy.deepcopy({"f": doubled})["f"] is doubled and copy.copy(doubled) is doubled
    )
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_methods() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @functools.partial(poot.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            """Scale."""
            return x * self.scale

        @staticmethod
        @poot.jit
        def shift(x: Any) -> Any:
            return x + 1

    two, three = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(two.apply(X), X * 2)
    np.testing.assert_array_equal(three.apply(X), X * 3)
    assert two.apply.__doc__ == "Scale." and isinstance(Model.apply, type(two.shift))
    assert len(two.apply.trace(X).graph.eqns) == 1
    np.testing.assert_array_equal(Model.shift(X), X + 1)


def test_clear_caches_traces_anew() -> None:
    f, traces = counted(lambda x: x + 1)
    f(X)
    poot.clear_caches()
    np.testing.assert_array_equal(f(X), X + 1)
    assert len(traces) == 2


def test_jit_equals_eager_bit_for_bit_on_elementwise_work() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * y - x / (y * y + 0.5)) ** 2 + x % y, x // y, abs(x) - y

    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, 7, 9), dtype=np.float32)
    eager = f(poot.device_put(x), poot.device_put(y))
    for ours, theirs in zip(poot.jit(f)(x, y), eager, strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def test_signed_zeros_and_nans_are_not_folded_away() -> None:
    zeros = np.array([-0.0, 0.0], np.float32)
    cases = [
        (lambda x: x + 0.0, [0.0, 0.0]),
        (lambda x: x + (-0.0), [-0.0, 0.0]),
        (lambda x: x * 1, [-0.0, 0.0]),
        (lambda x: 0 - x, [0.0, 0.0]),
        (lambda x: -x, [0.0, -0.0]),
        (lambda x: x - 0.0, [-0.0, 0.0]),
    ]
    for function, expected in cases:
        for result in (poot.jit(function)(zeros), function(poot.device_put(zeros))):
            signs = np.signbit(np.asarray(result))
            np.testing.assert_array_equal(signs, np.signbit(expected))
    special = np.array([np.inf, np.nan, -1.0, 0.0], np.float32)
    nan = np.nan
    for function, expected in (
        (lambda x: 0 * x, [nan, nan, -0.0, 0.0]),
        (lambda x: x - x, [nan, nan, 0.0, 0.0]),
        (lambda x: x / x, [nan, nan, 1.0, nan]),
        (lambda x: x == x, [True, False, True, True]),
    ):
        np.testing.assert_array_equal(poot.jit(function)(special), expected)


def test_many_inputs_and_many_outputs() -> None:
    for count in (40, 70):
        arguments = [np.full(5, i, np.float32) for i in range(count)]
        total = poot.jit(lambda *xs: functools.reduce(lambda a, b: a + b, xs))
        for _ in range(2):
            expected = count * (count - 1) // 2
            np.testing.assert_array_equal(total(*arguments), np.full(5, expected))
    split = poot.jit(lambda x: [x + i for i in range(33)])
    for i, result in enumerate(split(X)):
        np.testing.assert_array_equal(result, X + i)


def test_a_new_call_sees_new_content_of_a_numpy_argument() -> None:
    f = poot.jit(lambda x: x * 2)
    x = X.copy()
    first = f(x)
    x[:] = 0
    second = f(x)
    np.testing.assert_array_equal(first, X * 2)
    np.testing.assert_array_equal(second, X * 0)
