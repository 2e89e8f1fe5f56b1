"""The list of traps is complete: each is a test.

`data/traps.txt` names places where obvious implementations go wrong, one a line. The
test of a trap is named after it; what it stands for besides is tested beside it.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
TITLES = (TESTS / "data" / "traps.txt").read_text().splitlines()

# Tests in other files that are part of a trap's.
ELSEWHERE = {
    "where + sqrt at 0": [
        "test_traps_derivatives.py::test_where_sqrt_at_0_derivatives",
    ],
    "logsumexp and softmax with -inf": [
        "test_nn_softmax.py::test_logsumexp_and_softmax_with_inf",
        "test_nn_attention.py::test_one_key_and_rows_without_any",
        "test_traps_derivatives.py::test_logsumexp_and_softmax_derivatives_with_inf",
    ],
    "size-0 softmax, prod jvp": [
        "test_nn_softmax.py::test_rows_of_nothing",
        "test_traps_derivatives.py::test_size_0_prod_jvp",
    ],
    "tanh, gelu, sigmoid at large arguments": [
        "test_nn_activations.py::test_large_arguments",
        "test_traps_derivatives.py"
        "::test_tanh_gelu_sigmoid_derivatives_at_large_arguments",
    ],
    "size-0 dimensions": [
        "test_traps_derivatives.py::test_size_0_batches_loops_and_gradients",
    ],
    "pytrees: None, order, empties, ints": [
        "test_traps_derivatives.py::test_derivatives_and_batches_of_trees",
    ],
    "x^0 and x^n at 0": [
        "test_traps_derivatives.py::test_x_0_and_x_n_at_0_derivatives",
        "test_traps_numbers.py::test_pow_with_negative_base",
        "test_traps_integers.py::test_integer_powers",
    ],
    "the driver's exp, log, tanh, atan, pow": [
        "test_math_device.py::test_the_device_computes_what_numpy_does",
    ],
    "out-of-bounds and negative indices": [
        "test_vulkan_isolation.py::test_random_graphs_touch_what_they_declare",
        "test_array.py::test_indices_out_of_range_clamp",
        "test_traps_derivatives.py::test_out_of_bounds_derivatives",
        "test_traps_derivatives.py::test_jacrev_of_a_vmapped_index",
    ],
    "escaped tracers, concretization": [
        "test_tracing.py::test_asking_for_numbers_is_an_error",
        "test_tracing.py::test_a_leaked_value_is_refused_wherever_it_is_used",
        "test_traps_derivatives.py::test_values_do_not_leak_from_transformations",
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


def test_every_trap_is_a_test() -> None:
    assert len(TITLES) == len(set(TITLES)) == 33
    files = TESTS.glob("test_traps_*.py")
    written = {name for path in files for name in functions_in(path)}
    assert [title for title in TITLES if name_of(title) not in written] == []
    assert set(ELSEWHERE) <= set(TITLES)


@pytest.mark.parametrize("title", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(title: str) -> None:
    for place in ELSEWHERE[title]:
        file, _, name = place.partition("::")
        assert name in functions_in(TESTS / file), place
