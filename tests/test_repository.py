"""The repository keeps its own rules: layers, sizes, dependencies, commands."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {"core": 0, "lowering": 1, "vulkan": 2, "interpreters": 3}
PUBLIC = 4
RUNTIME = {"numpy", "ml_dtypes", "cffi", "optree", "platformdirs"}
# Written by the scripts in tools/, so that the limits of hand-written code do not hold.
GENERATED_MARK = "by tools/generate_"
# Columns are ruff's business.
FILE_LINES, FUNCTION_LINES = 600, 60

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted((ROOT / "poot").rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_source = pytest.mark.parametrize("path", SOURCES, ids=by_name)


def is_generated(text: str) -> bool:
    return any(GENERATED_MARK in line for line in text.splitlines()[:5])


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(dotted: str) -> int:
    parts = dotted.split(".")
    return LAYERS.get(parts[1], PUBLIC) if len(parts) > 1 else PUBLIC


@each_source
def test_layers_import_downwards(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    upwards = [
        name
        for name in imports(ast.parse(path.read_text()))
        if name.split(".")[0] == "poot" and layer(name) > layer(module)
    ]
    assert upwards == []


@each_source
def test_imports_only_runtime_dependencies(path: Path) -> None:
    allowed = RUNTIME | set(sys.stdlib_module_names) | {"poot", "_cffi_backend"}
    names = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
    assert names - allowed == set()


@each_source
def test_no_import_inside_a_function(path: Path) -> None:
    inside = [
        node.lineno
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, Function)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert inside == []


@each_source
def test_only_opening_imports_by_name(path: Path) -> None:
    text = path.read_text()
    by_names = "import_module" in text or "__import__" in text
    assert by_names == (by_name(path) == "poot/interpreters/opening.py")


@each_source
def test_sizes(path: Path) -> None:
    text = path.read_text()
    if is_generated(text):
        return
    assert len(text.splitlines()) <= FILE_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) and node.end_lineno is not None
    }
    assert {n: size for n, size in long.items() if size > FUNCTION_LINES} == {}


def test_runtime_dependencies() -> None:
    requirements = PYPROJECT["project"]["dependencies"]
    assert {r.partition(">=")[0] for r in requirements} == RUNTIME


def test_readme_explains_each_dependency() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = "\n".join(line for line in readme.splitlines() if line.startswith("|"))
    extras = PYPROJECT["project"]["optional-dependencies"]
    requirements = sum(extras.values(), PYPROJECT["project"]["dependencies"])
    names = {r.partition(">")[0].partition("=")[0] for r in requirements}
    missing = [n for n in names if n not in rows and not n.startswith("poot[")]
    assert missing == []


def test_readme_example_runs() -> None:
    readme = (ROOT / "README.md").read_text()
    example = readme.partition("```python\n")[2].partition("```")[0]
    assert len(example.splitlines()) <= 25
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "(4096, 1024)" in done.stdout


def test_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in ("scripts/demo", "scripts/test"):
        assert f"./{command}" in readme
        assert os.access(ROOT / command, os.X_OK)
    assert "scripts/test" in (ROOT / ".ci" / "run").read_text()


def test_import_is_light() -> None:
    """Importing poot, and tracing, load neither JAX nor what only a device needs."""
    code = "import sys, poot; poot.make_graph(poot.numpy.sin)(1.0); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules = done.stdout.split()
    assert "poot.interpreters.opening" in modules
    behind = ("poot.lowering", "poot.vulkan", "poot.interpreters.backend_")
    strangers = ("jax", "cffi", "_cffi_backend", "platformdirs", "concurrent")
    assert [name for name in modules if name.startswith(behind)] == []
    assert [name for name in modules if name.split(".")[0] in strangers] == []
