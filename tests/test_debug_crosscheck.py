"""The cross-check of functions that hold wrappers, records and host calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import ShapeDtypeStruct, debug, lax
from tests.backends import oracle_backend  # noqa: F401


@pytest.mark.usefixtures("oracle_backend")
def test_the_crosscheck_runs_wrappers_records_and_host_calls() -> None:
    pytest.importorskip("jax")

    @poot.custom_jvp
    def doubled(x: Any) -> Any:
        return x * 2

    doubled.defjvps(lambda t, out, x: t * 2)

    def f(x: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            debug.callback(lambda c: None, c)
            return poot.checkpoint(doubled)(c) + x, None

        total, _ = lax.scan(body, jnp.float32(0), x)
        scalar = ShapeDtypeStruct((), np.float32)
        return total + poot.pure_callback(np.exp, scalar, total)

    report = poot.crosscheck(f)(np.ones(3, np.float32))
    report.raise_if(ulp=1)
    assert len(report.outputs[0].values) == 3
