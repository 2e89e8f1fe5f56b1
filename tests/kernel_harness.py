"""Plans a graph, runs it on the Vulkan device, and gives NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Registers the lower rules.
import poot.lowering.kernels.pointwise  # noqa: F401
from poot.core.builder import Builder
from poot.core.dtypes import Scalar, as_dtype
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.oracle.evaluate import evaluate
from poot.core.types import Storage, TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.planner import make_program
from poot.lowering.program import Program
from poot.vulkan.device import Device, open_device
from poot.vulkan.executable import Executable

Array = np.ndarray[Any, Any]


@functools.cache
def device() -> Device:
    """The device that tests run on."""
    return open_device()


def one_op(op: Op, *operands: Array | Scalar) -> Graph:
    """The graph of one op on arrays of these types; Scalars are literals in it."""
    builder = Builder()
    refs = [
        operand if isinstance(operand, Scalar) else builder.input(type_of(operand))
        for operand in operands
    ]
    for out in builder.emit(op, tuple(refs)):
        builder.result(out)
    return builder.finish()


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, as_dtype(array.dtype))


def plan_graph(
    graph: Graph,
    info: DeviceInfo | Mapping[str, Any] | None = None,
    generic: bool = False,
) -> Program:
    """The program of a graph. `info` may name features and limits to change."""
    if not isinstance(info, DeviceInfo):
        info = device().info.masked(**(info or {}))
    return make_program(graph, info, generic=generic)


def run_graph(
    graph: Graph,
    args: Sequence[Any],
    info: DeviceInfo | Mapping[str, Any] | None = None,
    generic: bool = False,
) -> tuple[Array, ...]:
    """The results of `graph` on `args`, given in the order of `graph.arguments`."""
    return run_program(graph, plan_graph(graph, info, generic), args)


def run_program(
    graph: Graph, program: Program, args: Sequence[Any]
) -> tuple[Array, ...]:
    """Run a planned graph once."""
    where = device()
    consts = [where.upload(_plain(graph.payloads[value])) for value in graph.consts]
    executable = Executable(where, program, consts)
    buffers, scalars = [], []
    for value, arg in zip(graph.arguments, args, strict=True):
        meta = graph.values[value]
        array = np.asarray(arg, dtype=meta.type.dtype.numpy)
        if meta.storage is Storage.SLOT:
            scalars.append(array.item())
            buffers.append(None)
        else:
            assert array.shape == meta.type.shape
            buffers.append(where.upload(_plain(array)))
    results, _ = executable.call(buffers, scalars)
    arrays = []
    for type, result in zip(graph.result_types, results, strict=True):
        raw = np.empty(type.size_bytes, np.uint8)
        where.download(result, raw)
        arrays.append(raw.view(type.dtype.numpy).reshape(type.shape))
    executable.close()
    return tuple(arrays)


def _plain(array: Any) -> Array:
    """The bytes of an array, whatever its dtype."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def oracle(graph: Graph, args: Sequence[Any]) -> tuple[Array, ...]:
    """What `graph` means, with subnormals treated as the device treats them."""
    return evaluate(graph, *args, flush=not device().info.keeps_subnormals32)


def same_bits(got: Array, wanted: Array) -> bool:
    """Equal in every bit, but for what kind of NaN."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    if got.tobytes() == wanted.tobytes():
        return True
    nans = (got != got) & (wanted != wanted)
    bits = np.dtype(f"u{got.itemsize}")
    return bool(np.all(nans | (got.view(bits) == wanted.view(bits))))


def assert_exact(
    graph: Graph,
    args: Sequence[Any],
    info: DeviceInfo | Mapping[str, Any] | None = None,
    generic: bool = False,
) -> None:
    """The device gives what the oracle does, bit for bit."""
    wanted = oracle(graph, args)
    got = run_graph(graph, args, info, generic)
    for number, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        assert same_bits(mine, right), (
            f"result {number}, {right.dtype}{right.shape}: device {mine.ravel()[:20]}, "
            f"oracle {right.ravel()[:20]}\n{graph}"
        )
