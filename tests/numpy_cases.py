"""One expression, evaluated by NumPy, by poot eagerly and by poot jitted.

A case is text such as `"m.flip(a, 1)"`: `m` is the module, the other names are its
operands. NumPy computes on f64 and gives the values, JAX without computing the dtypes
and weakness, unless the case says what is right.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import poot
import poot.numpy
from poot.core import dtypes
from poot.core.conversion import round_float
from poot.core.oracle import impl
from poot.interpreters.backend import backend, use_backend
from poot.interpreters.backend_oracle import OracleBackend
from tests.backends import device_backend
from tests.numerics import (
    assert_close,
    assert_same_bits,
    flushed,
    special_values,
    ulps,
)

Array = np.ndarray[Any, Any]
UNSET: Any = object()


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """An expression with its operands, and how far its result may be off."""

    text: str
    operands: dict[str, Any]
    ulps: float = 0
    # What comes out, in any dtype that holds it, if NumPy says something else.
    values: Any = UNSET
    # The dtype, if JAX says something else.
    dtype: Any = None
    # Whether the order of additions may differ between eager and jit.
    sums: bool = False
    # The expression for NumPy where its name or meaning differs.
    numpy: str = ""
    # Whether NumPy gets the operands in their own dtype instead of f64.
    native: bool = False

    def __str__(self) -> str:
        kinds = "-".join(_kind(x) for x in self.operands.values())
        return f"{self.text} {kinds}".strip()

    def evaluate(self, module: Any, text: str = "", **operands: Any) -> Any:
        scope = {"np": np, "m": module, **operands}
        return eval(text or self.text, scope)


def case(text: str, ulps: float = 0, **options: Any) -> Case:
    """A case whose one-letter options are its operands."""
    operands = {name: x for name, x in options.items() if len(name) == 1}
    rest = {name: x for name, x in options.items() if len(name) > 1}
    return Case(text, operands, ulps, **rest)


def _kind(x: Any) -> str:
    if isinstance(x, list | tuple):
        return "(" + ",".join(map(_kind, x)) + ")"
    if isinstance(x, np.ndarray | np.generic):
        return f"{dtypes.as_dtype(x.dtype)}{list(x.shape)}".replace(" ", "")
    return repr(x)


# --- what is right ----------------------------------------------------------


def _wide(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(map(_wide, x))
    if isinstance(x, np.ndarray | np.generic) and dtypes.as_dtype(x.dtype).is_float:
        return np.asarray(x).astype(np.float64)
    return x


def _narrowed(x: Any, dtype: np.dtype[Any]) -> Array:
    array = np.asarray(x)
    if array.dtype == np.float64 and dtypes.as_dtype(dtype).is_float:
        return round_float(array, dtype)
    return array.astype(dtype)


def _flushed(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(map(_flushed, x))
    if isinstance(x, np.ndarray | np.generic) and dtypes.as_dtype(x.dtype).is_float:
        return flushed(np.asarray(x))
    return x


@np.errstate(all="ignore")
def expected(case: Case) -> tuple[Any, Any]:
    """The leaves that are right, and JAX's types of them."""
    types = None
    if case.dtype is None:
        call = functools.partial(case.evaluate, jax.numpy)
        shapes = jax.eval_shape(lambda operands: call(**operands), case.operands)
        types = jax.tree.leaves(shapes)
    if case.values is not UNSET:
        leaves = [case.values]
    else:
        given = {
            name: x if case.native else _wide(x) for name, x in case.operands.items()
        }
        leaves = _leaves(case.evaluate(np, case.numpy, **given))
    wanted = [t.dtype for t in types] if types else [np.dtype(case.dtype)]
    return [_narrowed(x, d) for x, d in zip(leaves, wanted, strict=True)], types


# --- what poot gives --------------------------------------------------------


def flushes() -> bool:
    """Whether the backend in use takes subnormals for zeros where it calculates."""
    on_host = isinstance(backend(), OracleBackend)
    return not (on_host or backend().info.keeps_subnormals32)


def check(case: Case) -> None:
    """Eager and jitted results are right; elementwise ones agree in every bit."""
    right, types = expected(case)
    zeroed = right
    flush = flushes()
    if flush:
        operands = {name: _flushed(x) for name, x in case.operands.items()}
        zeroed, _ = expected(dataclasses.replace(case, operands=operands))
    eager = _leaves(case.evaluate(poot.numpy, **case.operands))
    jitted = _leaves(
        poot.jit(lambda operands: case.evaluate(poot.numpy, **operands))(case.operands)
    )
    assert len(eager) == len(jitted) == len(right)
    for number, (one, other, kept, lost) in enumerate(
        zip(eager, jitted, right, zeroed, strict=True)
    ):
        where = f"{case} result {number}"
        wanted = _nearer(np.asarray(one), kept, lost) if flush else kept
        assert_close(one, wanted, case.ulps, f"{where} eager", flush)
        if case.sums:
            assert_close(other, wanted, case.ulps, f"{where} jitted", flush)
        else:
            assert_same_bits(other, np.asarray(one), f"{where} jitted against eager")
        if types is not None:
            # JAX has weak bools, poot none.
            weak = types[number].weak_type and one.dtype != np.bool_
            assert (one.weak_type, other.weak_type) == (weak, weak), where


def _nearer(given: Array, kept: Array, lost: Array) -> Array:
    """What is expected where subnormal operands may count as zeros.

    Functions of the bits keep them and arithmetic does not, so either value will do.
    """
    if dtypes.as_dtype(kept.dtype).is_float:
        one, *others = (flushed(x, edge=True) for x in (given, kept, lost))
        distances = [ulps(one, other) for other in others]
        return np.where(distances[0] <= distances[1], kept, lost)
    return np.where(given == kept, kept, lost)


def _leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


# --- backends ---------------------------------------------------------------


def _forbidden(op: Any, *_: Any) -> Any:
    raise AssertionError(f"{op} was computed on the host, though there is a device")


@pytest.fixture(scope="module", params=["device", "oracle"])
def one_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """The backend of a whole module, so that its kernels are made once."""
    on_device = request.param == "device"
    chosen = device_backend() if on_device else OracleBackend()
    if chosen is None:
        pytest.skip("no Vulkan device")
    with pytest.MonkeyPatch.context() as patch:
        if on_device:
            rules = dict.fromkeys(impl._rules, _forbidden)
            patch.setattr(impl, "_rules", rules)
        use_backend(chosen)
        poot.clear_caches()
        yield
        poot.clear_caches()
        use_backend(None)


Test = Callable[..., None]


def each_row(cases: Sequence[Case]) -> Callable[[Test], Test]:
    """Run a test on all cases by the oracle, on the first of each text on the device.

    Dtypes that a device treats in a way of its own are the matter of the ops' tests.
    """
    first = {case.text: case for case in reversed(cases)}.values()
    rows = [("device", case) for case in first] + [("oracle", case) for case in cases]
    marks = (
        pytest.mark.usefixtures("one_backend"),
        pytest.mark.parametrize(
            ("one_backend", "row"), rows, ids=str, indirect=["one_backend"]
        ),
    )
    return lambda test: marks[0](marks[1](test))


# --- operands ---------------------------------------------------------------


def specials(name: str) -> Array:
    """The special values of a dtype."""
    return special_values(dtypes.by_name(name))


def pairs(name: str) -> dict[str, Array]:
    """Operands `a` and `b` that run over all pairs of special values."""
    values = specials(name)
    a, b = np.meshgrid(values, values, indexing="ij")
    return {"a": a.ravel(), "b": b.ravel()}
