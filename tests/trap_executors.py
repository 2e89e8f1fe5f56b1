"""Runs one function on every executor, for values that each of them must give.

The executors: the oracle on the traced graph; each op on the device at once; the
function jitted; its traced graph by one kernel an equation, through no pass; and
jitted again behind work that fuses with it. The last two take operands of 32 bits only:
what they may do wrong hangs on no dtype, and kernels take their time to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.interpreters.backend import Executable, backend, use_backend
from poot.lowering.passes.driver import run_passes
from poot.lowering.passes.unwrap import drop_barriers, unwrap
from tests.backends import device_backend, forbid_oracle
from tests.numerics import Array, assert_close, assert_same_bits

Function = Callable[..., Any]

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS = SIGNED + UNSIGNED
INF, NAN = np.inf, np.nan

each_float = pytest.mark.parametrize("dtype", FLOATS, ids=str)
each_signed = pytest.mark.parametrize("dtype", SIGNED, ids=str)
each_unsigned = pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
each_integer = pytest.mark.parametrize("dtype", INTEGERS, ids=str)


@pytest.fixture(scope="module")
def on_device() -> Iterator[None]:
    """The device runs eager and jitted code of a whole module."""
    chosen = device_backend()
    if chosen is None:
        pytest.skip("no Vulkan device")
    use_backend(chosen)
    poot.clear_caches()
    yield
    poot.clear_caches()
    use_backend(None)


def array(numbers: Any, dtype: DType) -> Array:
    """Numbers rounded or wrapped to a dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(dtype.numpy)


def f32(*numbers: float) -> Array:
    return array(numbers, dtypes.float32)


def i32(*numbers: int) -> Array:
    return array(numbers, dtypes.int32)


def need(*needed: DType) -> None:
    """Skip the test where the device lacks a dtype."""
    info = backend().info
    for dtype in needed:
        has = {"f64": info.float64, "i64": info.int64, "u64": info.int64}
        if not has.get(dtype.name, True):
            pytest.skip(f"{info.name} has no {dtype}")


def check(
    function: Function,
    *operands: Array,
    right: Any,
    ulps: float = 0,
    reassociates: bool = False,
    fused: bool = True,
) -> None:
    """Every executor gives `right`: an array, or a tuple of them, for each result.

    All of the device's agree in every bit, unless the function `reassociates`, as sums
    and contractions may. Not `fused`: no other work stands before it.
    """
    wanted = right if isinstance(right, tuple) else (right,)
    results = everywhere(function, *operands, fused=fused)
    for executor, found in results.items():
        for number, (one, expected) in enumerate(zip(found, wanted, strict=True)):
            where = f"{executor}, result {number}"
            assert_close(one, expected, ulps, where)
            if executor != "oracle" and not reassociates:
                assert_same_bits(one, results["eager"][number], f"{where}, not eager")


def everywhere(
    function: Function, *operands: Array, fused: bool = True
) -> dict[str, Sequence[Array]]:
    """The results by executor; on the device, the oracle's rules all raise."""
    with poot.config.override(enable_x64=any(x.dtype.itemsize == 8 for x in operands)):
        graph = poot.make_graph(function)(*operands)
        results: dict[str, Sequence[Array]] = {
            "oracle": poot.evaluate(graph, *operands)
        }
        with pytest.MonkeyPatch.context() as patch:
            forbid_oracle(patch)
            results |= _on_the_device(function, operands, graph, fused)
    return results


def _on_the_device(
    function: Function, operands: Sequence[Array], graph: Graph, fused: bool
) -> dict[str, Sequence[Array]]:
    found = {
        "eager": leaves(function(*map(poot.device_put, operands))),
        "jitted": leaves(poot.jit(function)(*operands)),
    }
    if all(x.dtype.itemsize == 4 for x in operands):
        found["kernels"] = by_kernels(graph, operands)
        if fused:
            neutral = [_neutral(x) for x in operands]
            found["fused"] = leaves(_behind_work(function)(operands, neutral))
    return found


def by_kernels(graph: Graph, operands: Sequence[Array]) -> list[Array]:
    """The results of a graph as it stands, each equation by a kernel of its own.

    Wrappers are no equations of the device's: their bodies stand for them.
    """
    graph, _ = run_passes((unwrap, drop_barriers), graph, backend().info)
    return run_loaded(backend().load(graph, generic=False), graph, operands)


def run_loaded(
    executable: Executable, graph: Graph, operands: Sequence[Array]
) -> list[Array]:
    """The results of a graph that was made ready."""
    buffers, _ = executable.call([backend().upload(x) for x in operands])
    types = graph.result_types
    return [backend().download(b, t) for b, t in zip(buffers, types, strict=True)]


def leaves(result: Any) -> list[Array]:
    return [np.asarray(leaf) for leaf in poot.tree.leaves(result)]


def _neutral(x: Array) -> Array:
    is_float = dtypes.as_dtype(x.dtype).is_float
    return np.ones(x.shape, x.dtype) if is_float else np.zeros(x.shape, x.dtype)


def _behind_work(function: Function) -> Function:
    """The function of operands that are computed, to what they are, in its kernel."""

    def behind(operands: Sequence[Any], neutral: Sequence[Any]) -> Any:
        return function(*map(_unchanged, operands, neutral))

    return poot.jit(behind)


def _unchanged(x: Any, neutral: Any) -> Any:
    """`x` by a product or a sum that nobody can tell to be idle."""
    return x * neutral if jnp.issubdtype(x.dtype, jnp.floating) else x ^ neutral
