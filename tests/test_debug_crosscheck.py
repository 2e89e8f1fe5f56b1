"""Records and host calls in JAX: what it prints, and what the cross-check says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import ShapeDtypeStruct, debug, lax
from tests.backends import each_backend, oracle_backend  # noqa: F401


def nested(np_: Any, lax: Any, show: Any) -> Any:
    """A While within a Scan, with a choice within, all of which print."""

    def condition(carry: Any) -> Any:
        show("{} < 2", carry[0])
        return carry[0] < 2

    def odd(y: Any) -> Any:
        show("odd {y:.3f}", y=y)
        return y * 2

    def body(carry: Any) -> Any:
        show("body {} {:.3f}", *carry)
        return carry[0] + 1, lax.cond(carry[0] % 2 == 0, np_.sin, odd, carry[1])

    def step(c: Any, i: Any) -> Any:
        n, c = lax.while_loop(condition, body, (i, c))
        show("{} after {:.3f}", n, c)
        return c, c

    def function(x: Any) -> Any:
        c, ys = lax.scan(step, x, np_.arange(3, dtype=np_.int32))
        show("end {}", ys > 1)
        return c

    return function


@pytest.mark.usefixtures("each_backend")
def test_jax_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    jax = pytest.importorskip("jax")

    def ordered(*args: Any, **kwargs: Any) -> None:
        jax.debug.print(*args, **kwargs, ordered=True)

    there = jax.jit(nested(jax.numpy, jax.lax, ordered))
    there(np.float32(0.7)).block_until_ready()
    jax.effects_barrier()
    wanted = capsys.readouterr().out.splitlines()
    assert len(wanted) == 15
    here = nested(jnp, lax, debug.print)
    for function in (here, poot.jit(here), lambda x: poot.jvp(here, (x,), (x,))):
        function(jnp.float32(0.7))
        assert capsys.readouterr().out.splitlines() == wanted


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


@pytest.mark.usefixtures("oracle_backend")
def test_the_oracle_prints_too(capsys: pytest.CaptureFixture[str]) -> None:
    graph = poot.make_graph(lambda x: debug.print("{}", x))(np.int32(3))
    poot.evaluate(graph, np.int32(3))
    assert capsys.readouterr().out == "3\n"
