"""The examples, small, under poot and the same files under JAX."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import jax_or_poot
import poot

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def loaded(name: str, library: ModuleType, patch: pytest.MonkeyPatch) -> ModuleType:
    """An example as a module that runs under `library`."""
    patch.setattr(jax_or_poot, "jax", library)
    full_name = f"{name}_under_{library.__name__}"
    place = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(full_name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while it is being run.
    patch.setitem(sys.modules, full_name, module)
    spec.loader.exec_module(module)
    return module


def under_both(name: str, run: Any, patch: pytest.MonkeyPatch) -> list[Any]:
    """What `run` makes of an example under poot and under JAX, as NumPy arrays."""
    patch.setenv("MPLBACKEND", "agg")
    results = []
    for library in (poot, jax):
        found = run(loaded(name, library, patch))
        results.append([np.asarray(x) for x in jax.tree.leaves(found)])
    return results


@pytest.fixture(autouse=True, scope="module")
def jax_compiles_quickly() -> Iterator[None]:
    """JAX without the optimizations that take most of its time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def assert_alike(found: Any, wanted: Any, rtol: float, atol: float = 0) -> None:
    for one, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=rtol, atol=atol)


def test_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(digits: Any) -> Any:
        kept, held = digits.load_data()
        assert (len(kept[1]), len(held[1])) == (1438, 359)
        params, losses = digits.train(kept, size=16, steps=12, show=False)
        if digits.jax is poot:
            digits.draw(losses, tmp_path / "digits.png")
        return losses, params["conv1"]["weight"]

    found, wanted = under_both("digits", run, monkeypatch)
    assert_alike(found, wanted, rtol=1e-5, atol=1e-5)
    assert found[0][-3:].mean() < 0.9 * found[0][0]
    assert (tmp_path / "digits.png").stat().st_size > 1000


def test_pendulum(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(pendulum: Any) -> Any:
        starts = pendulum.fan(3)
        torques, history = pendulum.swing_up(starts, steps=30, iterations=8)
        if pendulum.jax is poot:
            pendulum.draw(starts, torques, history, tmp_path / "pendulum.png")
        return torques, history

    found, wanted = under_both("pendulum", run, monkeypatch)
    assert_alike(found, wanted, rtol=1e-4, atol=1e-4)
    assert (found[1][-1] < found[1][0]).all()
    assert (tmp_path / "pendulum.png").stat().st_size > 1000


def test_hmc(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(hmc: Any) -> Any:
        key = hmc.jax.random.key(1)
        starts = np.zeros((3, 3), np.float32)
        points = hmc.make_points(20)
        return hmc.sample(key, starts, points, 0.05, draws=6, leaps=4)

    found, wanted = under_both("hmc", run, monkeypatch)
    assert_alike(found, wanted, rtol=1e-4, atol=1e-5)
    assert 0 < found[1].mean() <= 1


def test_predator_prey(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(example: Any) -> Any:
        return example.fit(example.observe(4), iterations=4)

    found, wanted = under_both("predator_prey", run, monkeypatch)
    # Both solvers keep to their tolerance, by steps that roundings may change.
    assert_alike(found, wanted, rtol=1e-3)
    assert found[1][-1] < found[1][0]


def test_equilibrium(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(equilibrium: Any) -> Any:
        points, labels = equilibrium.make_spirals(16)
        return equilibrium.train(points, labels, iterations=6, width=8)

    found, wanted = under_both("equilibrium", run, monkeypatch)
    assert_alike(found, wanted, rtol=1e-3, atol=1e-4)
    assert found[-1][-1] < found[-1][0]


def test_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(transformer: Any) -> Any:
        params, losses = transformer.train(steps=4, batch=8, length=3)
        ordered = transformer.sort(params, np.array([[3, 1, 2]], np.int32))
        return losses, ordered

    found, wanted = under_both("transformer", run, monkeypatch)
    assert_alike(found[:1], wanted[:1], rtol=1e-4)
    assert found[1].shape == wanted[1].shape == (1, 3)
    assert found[1].dtype == wanted[1].dtype == np.int32


def test_gaussian_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(process: Any) -> Any:
        x, y = process.make_points(24)
        params, fits, counts = process.learn(x, y, iterations=4)
        places = np.linspace(1, 9, 5, dtype=np.float32)
        return params, fits, *process.predict(params, x, y, places), counts

    found, wanted = under_both("gaussian_process", run, monkeypatch)
    assert_alike(found[:4], wanted[:4], rtol=2e-3, atol=2e-3)
    assert (np.abs(found[4] - wanted[4]) <= 2).all()
