"""`poot.crosscheck`: one traced graph on the device, by the oracle and in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all, input_arrays
from poot.core.types import TensorType
from poot.interpreters.array import Array
from poot.interpreters.backend import backend
from poot.interpreters.flat import require_callable
from poot.interpreters.jit import JitFunction, jit
from poot.interpreters.opening import optional_jax
from poot.interpreters.pytree import flatten, leaf_paths
from poot.testing._jax_run import JaxRun
from poot.testing._report import Comparison, CrossCheck, Output

_WITHOUT_JAX = "it is not installed; `pip install 'poot[crosscheck]'` adds it"


def crosscheck(function: Callable[..., Any]) -> Callable[..., CrossCheck]:
    """A function that runs one traced graph of `function` in three ways.

    Called with arguments, it traces once and runs the graph jitted on the device, by
    the oracle with the device's setting of subnormals, and, if JAX is installed, in
    `jax.numpy` and `jax.lax` on the CPU. It returns a CrossCheck, which prints as a
    table of the largest differences:

        report = poot.crosscheck(f)(x, y)
        report.raise_if(ulp=4)

    A failed run-time check raises CheckError.
    """
    require_callable("crosscheck", function)
    jitted = function if isinstance(function, JitFunction) else jit(function)

    def check(*args: Any, **kwargs: Any) -> CrossCheck:
        traced = jitted.trace(*args, **kwargs)
        graph = traced.graph
        leaves = jitted.leaves(*args, **kwargs)
        types = [graph.type(value) for value in graph.arguments]
        # Before the device runs, since it may take over donated arrays.
        given = [_on_host(*pair) for pair in zip(leaves, types, strict=True)]
        returned = traced.lower().compile()(*args, **kwargs)
        return _report(graph, given, returned)

    return check


def _on_host(leaf: Any, type: TensorType) -> np.ndarray[Any, Any]:
    if isinstance(leaf, bool | int | float):
        return Scalar.of(leaf, type.dtype).array
    if not isinstance(leaf, Array | np.ndarray | np.generic):
        raise ArgumentError(
            f"crosscheck runs on numbers, given {leaf!r}; give an array"
        )
    return np.asarray(leaf).astype(type.dtype.numpy)


def _report(
    graph: Graph, given: Sequence[np.ndarray[Any, Any]], returned: Any
) -> CrossCheck:
    """The oracle and JAX on what was given, beside what the device returned."""
    module = optional_jax()
    run = None if module is None else JaxRun(module, graph, input_arrays(graph, given))
    flush = not backend().info.keeps_subnormals32
    observe = None if run is None else run.step
    right = evaluate_all(graph, *given, flush=flush, observe=observe).results
    leaves, tree = flatten(returned)
    outputs = []
    for number, accessor in enumerate(leaf_paths(tree)):
        value = graph.results[number]
        values = {"device": np.asarray(leaves[number]), "oracle": right[number]}
        notes: tuple[str, ...] = ()
        if run is not None:
            values["jax"] = run.result(value)
            notes = tuple(run.notes.get(value, ()))
        name, compared = accessor.codify("result"), tuple(_compared(values))
        outputs.append(Output(name, graph.type(value), values, compared, notes))
    (device, *_) = backend().devices
    without = _WITHOUT_JAX if module is None else None
    return CrossCheck(graph, str(device), tuple(outputs), without)


def _compared(values: dict[str, np.ndarray[Any, Any]]) -> list[Comparison]:
    """Each pair; the second of a pair is what relative differences go by."""
    pairs = combinations(values, 2)
    ordered = [(b, a) if a == "oracle" else (a, b) for a, b in pairs]
    return [Comparison.of(a, b, values[a], values[b]) for a, b in ordered]
