"""Invert the conditions of a file one by one, and tell which no test notices.

    python tools/invert_guards.py poot/lowering/passes/rope.py tests/test_rope.py

Each condition of an `if`, each part of one that `and` or `or` joins, and each such
part of a returned condition is negated in a copy of poot, on which the tests then run.
A line that is printed has a guard without a near miss.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_COPIED = ("poot", "tests", "examples", "benchmarks")


def guards(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions to invert, outermost first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp):
            yield from _parts(node.test)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.BoolOp):
            yield from _parts(node.value)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield from _parts(test)


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
    else:
        yield test


class _Inverter(ast.NodeTransformer):
    def __init__(self, target: ast.expr) -> None:
        self._target = target

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            assert isinstance(node, ast.expr)
            return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)
        return self.generic_visit(node)


def inverted(source: str) -> Iterator[tuple[int, str, str]]:
    """The line and text of each guard, and the source in which it is inverted."""
    count = len(list(guards(ast.parse(source))))
    for number in range(count):
        tree = ast.parse(source)
        target = list(guards(tree))[number]
        line, text = target.lineno, ast.unparse(target)
        changed = _Inverter(target).visit(copy.copy(tree))
        yield line, text, ast.unparse(ast.fix_missing_locations(changed))


def survivors(file: Path, tests: list[str], timeout_s: float) -> list[str]:
    """The guards of a file that the tests do not miss."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name)
        shutil.copy(ROOT / "pyproject.toml", folder)
        target = Path(folder) / file.resolve().relative_to(ROOT)
        for line, text, source in inverted(file.read_text()):
            target.write_text(source)
            if _passes(folder, tests, timeout_s):
                found.append(f"{file}:{line}: {text}")
                print(found[-1], flush=True)
    return found


def _passes(folder: str, tests: list[str], timeout_s: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HYPOTHESIS_PROFILE"] = "ci"
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the file whose guards are inverted")
    parser.add_argument("tests", nargs="+", help="tests, as pytest takes them")
    parser.add_argument("--timeout", type=float, default=120.0, help="of a run, in s")
    arguments = parser.parse_args()
    if not _passes(str(ROOT), arguments.tests, arguments.timeout):
        print("the tests fail as it is", file=sys.stderr)
        return 2
    return 1 if survivors(arguments.file, arguments.tests, arguments.timeout) else 0


if __name__ == "__main__":
    sys.exit(main())
