"""The list of traps is complete: each is a test, or awaits what poot does not have yet.

`data/traps.txt` names places where obvious implementations go wrong, one a line. The
test of a trap is named after it; what it stands for besides is tested beside it.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from pathlib import Path

import pytest

import poot

TESTS = Path(__file__).resolve().parent
TITLES = (TESTS / "data" / "traps.txt").read_text().splitlines()

# Traps, or their parts, that cannot be tested yet: what for, and the attribute of poot
# with which they must be.
AWAITING = [
    ("where + sqrt at 0", "its derivatives, plain and with a double where", "grad"),
    ("ties of max, relu, abs", "derivatives at ties", "grad"),
    ("ties of max, relu, abs", "relu's derivative of 0", "nn"),
    ("x^0 and x^n at 0", "derivatives for n = 0, 1, 2, 3", "grad"),
    ("logsumexp and softmax with -inf", "the functions and attention", "nn"),
    ("logsumexp and softmax with -inf", "the Jacobian at -inf, 0, 0", "jacrev"),
    ("size-0 softmax, prod jvp", "the functions of poot.nn", "nn"),
    ("size-0 softmax, prod jvp", "the jvp of prod over (2, 0)", "jvp"),
    ("tanh, gelu, sigmoid at large arguments", "gelu's derivative", "grad"),
    ("tanh, gelu, sigmoid at large arguments", "gelu and sigmoid of poot.nn", "nn"),
    ("vmap of elementwise ops aligns batch axes", "batching", "vmap"),
    ("out-of-bounds and negative indices", "derivatives of gathers", "grad"),
    ("out-of-bounds and negative indices", "jacrev of a vmapped index", "jacrev"),
    ("size-0 dimensions", "vmap over (0, 3)", "vmap"),
    ("size-0 dimensions", "a scan over nothing", "lax.scan"),
    ("size-0 dimensions", "the gradient of a sum over (0, 3)", "grad"),
    ("pytrees: None, order, empties, ints", "gradients of trees and at ints", "grad"),
    ("pytrees: None, order, empties, ints", "vmap over [None, {}]", "vmap"),
    ("escaped tracers, concretization", "leaks through vmap", "vmap"),
    ("escaped tracers, concretization", "leaks through grad", "grad"),
]

# Tests in other files that are part of a trap's.
ELSEWHERE = {
    "x^0 and x^n at 0": [
        "test_traps_numbers.py::test_pow_with_negative_base",
        "test_traps_integers.py::test_integer_powers",
    ],
    "the driver's exp, log, tanh, atan, pow": [
        "test_math_device.py::test_the_device_computes_what_numpy_does",
    ],
    "out-of-bounds and negative indices": [
        "test_vulkan_isolation.py::test_random_graphs_touch_what_they_declare",
        "test_array.py::test_indices_out_of_range_clamp",
    ],
    "escaped tracers, concretization": [
        "test_tracing.py::test_asking_for_numbers_is_an_error",
        "test_tracing.py::test_a_leaked_value_is_refused_wherever_it_is_used",
    ],
    "read-after-write between dispatches": [
        "test_vulkan_executable.py::test_donated_buffers_become_results",
        "test_vulkan_recorder.py::test_each_barrier_is_needed_and_missed",
        "test_vulkan_transfer.py::test_uploads_come_before_later_calls",
    ],
    "very many inputs in one fused kernel": [
        "test_fusion.py::test_operands_of_a_kernel_are_limited",
        "test_fusion.py::test_results_of_a_kernel_are_limited",
    ],
    "threads": [
        "test_threads.py::test_each_thread_traces_and_runs_its_own_function",
        "test_threads.py::test_one_function_shared_by_all_threads_is_traced_once",
        "test_threads.py::test_an_exception_while_tracing_stays_in_its_thread",
    ],
    "device lost, long work": [
        "test_vulkan_device.py::test_a_timeout_says_so_and_can_be_waited_out",
        "test_vulkan_recorder.py::test_cuts_by_estimated_work_and_by_number",
    ],
    "shared-memory and workgroup limits": [
        "test_profiles.py::test_made_up_devices_get_valid_kernels_within_their_limits",
    ],
}


def name_of(title: str) -> str:
    """What the test of a trap is called."""
    return "test_" + re.sub("[^a-z0-9]+", "_", title.lower()).strip("_")


@functools.cache
def functions_in(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(n.name for n in nodes if isinstance(n, ast.FunctionDef))


def test_every_trap_is_a_test_or_awaits_something() -> None:
    assert len(TITLES) == len(set(TITLES)) == 33
    files = TESTS.glob("test_traps_*.py")
    written = {name for path in files for name in functions_in(path)}
    awaited = {title for title, _, _ in AWAITING}
    missing = [
        title
        for title in TITLES
        if name_of(title) not in written and title not in awaited
    ]
    assert missing == []
    assert awaited | set(ELSEWHERE) <= set(TITLES)


@pytest.mark.parametrize(("title", "part", "name"), AWAITING, ids=str)
def test_what_a_trap_awaits_is_not_there_yet(title: str, part: str, name: str) -> None:
    """Where this fails, write the test of that part and strike the row out."""
    with pytest.raises(AttributeError):
        operator.attrgetter(name)(poot)


@pytest.mark.parametrize("title", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(title: str) -> None:
    for place in ELSEWHERE[title]:
        file, _, name = place.partition("::")
        assert name in functions_in(TESTS / file), place
