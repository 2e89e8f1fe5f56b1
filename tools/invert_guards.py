"""Invert the conditions of a file one by one, and tell which no test notices.

    python tools/invert_guards.py poot/lowering/passes/rope.py tests/test_rope.py

Each condition of an `if`, a `case`, a loop or a comprehension, and what a function
that returns a bool returns, is negated in turn: of what `and` or `or` joins, each part.
So are comparisons, `not`, `isinstance`, `any` and `all` wherever they stand, and the
elements of the last two. A line that is printed has a guard without a near miss, or one
that no test reaches. Assertions are no guards. What runs at import, such as the
conditions of tables, is out of reach, as it has run.

The tests are collected once, and must not open a device in that. Each inversion is put
into the functions of a forked copy of this process, which runs the tests that reach its
line, quick ones first. One that needs far more CPU time than they took is one that was
noticed.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import resource
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
# How much longer a test may take with an inverted guard, and the least that it gets.
_TIMES_LONGER, _LEAST_S = 5, 10


class _Guards(ast.NodeVisitor):
    """Gathers the expressions to invert."""

    def __init__(self) -> None:
        self.found: list[ast.expr] = []
        self._seen: set[ast.expr] = set()
        # For each function around, whether it answers a question.
        self._answers: list[bool] = []

    def _add(self, test: ast.expr | None) -> None:
        """Invert a condition inside a function; joined parts are visited themselves."""
        if test is None or test in self._seen or not self._answers:
            return
        if isinstance(test, ast.BoolOp | ast.Constant):
            return
        self.found.append(test)
        self._seen.add(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._seen.add(test.operand)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        returns = node.returns
        self._answers.append(isinstance(returns, ast.Name) and returns.id == "bool")
        self.generic_visit(node)
        self._answers.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """What always holds is no guard."""

    def visit_If(self, node: ast.If) -> None:
        self._add(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._add(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node.test)
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        self._add(node.guard)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._add(test)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if self._answers and self._answers[-1]:
            self._add(node.value)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for value in node.values:
            self._add(value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._add(node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("any", "all", "isinstance"):
            self._add(node)
        if name in ("any", "all") and isinstance(node.args[0], ast.GeneratorExp):
            self._add(node.args[0].elt)
        self.generic_visit(node)


def guards(tree: ast.AST) -> list[ast.expr]:
    """The expressions to invert."""
    visitor = _Guards()
    visitor.visit(tree)
    return visitor.found


class _Inverter(ast.NodeTransformer):
    def __init__(self, target: ast.expr) -> None:
        self._target = target

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            assert isinstance(node, ast.expr)
            return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)
        return self.generic_visit(node)


@dataclass(frozen=True)
class Inversion:
    """One guard, and the code of the file in which it is inverted."""

    line: int
    text: str
    code: types.CodeType


def inversions(file: Path, source: str) -> list[Inversion]:
    found = []
    for number in range(len(guards(ast.parse(source)))):
        tree = ast.parse(source)
        target = guards(tree)[number]
        line, text = target.lineno, ast.unparse(target)
        changed = ast.fix_missing_locations(_Inverter(target).visit(tree))
        code = compile(changed, str(file), "exec")
        found.append(Inversion(line, text, code))
    return sorted(found, key=lambda inversion: inversion.line)


def _install(code: types.CodeType) -> None:
    """Give the functions that were made of a file their code in another version."""
    new: dict[tuple[str, int], types.CodeType] = {}
    stack = [code]
    while stack:
        outer = stack.pop()
        new[outer.co_qualname, outer.co_firstlineno] = outer
        stack.extend(c for c in outer.co_consts if isinstance(c, types.CodeType))
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType):
            old = function.__code__
            if old.co_filename == code.co_filename:
                function.__code__ = new[old.co_qualname, old.co_firstlineno]


class _Lines:
    """Notes the lines of a file that run."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.seen: set[int] = set()

    def __call__(self, frame: types.FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: types.FrameType, event: str, _: Any) -> Any:
        self.seen.add(frame.f_lineno)
        return self._line


@dataclass(frozen=True)
class _Found:
    """What the tests do as the file is."""

    failed: list[int]
    # The numbers of the tests that reach a line, quick ones first.
    tests: dict[int, list[int]]
    # What each test takes.
    seconds: list[float]


class Plugin:
    """Runs the collected tests once as they are, and once for each inversion."""

    def __init__(self, file: Path, lines: set[int]) -> None:
        self.file = file
        self.source = file.read_text()
        self.lines = lines
        self.survivors = 0

    def pytest_collection(self) -> None:
        # That a test fails is enough; the least example is not looked for.
        phases = [Phase.explicit, Phase.generate]
        profile = settings(settings.default, phases=phases)
        settings.register_profile("inverted", profile)
        settings.load_profile("inverted")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        base = self._base(session)
        if base.failed:
            names = ", ".join(session.items[number].nodeid for number in base.failed)
            raise pytest.UsageError(f"these fail as it is: {names}")
        tried = inversions(self.file, self.source)
        if self.lines:
            tried = [each for each in tried if each.line in self.lines]
        for inversion in tried:
            numbers = base.tests.get(inversion.line, [])
            if not numbers or _passes(session, inversion, numbers, base.seconds):
                self.survivors += 1
                where = f"{self.file.relative_to(ROOT)}:{inversion.line}"
                note = "" if numbers else "  (no test reaches it)"
                print(f"{where}: {inversion.text}{note}", flush=True)
        print(f"{len(tried)} inverted, {self.survivors} not noticed", flush=True)
        return True

    def _base(self, session: pytest.Session) -> _Found:
        reader, writer = os.pipe()

        def run() -> bool:
            lines = _Lines(str(self.file))
            rows = []
            _install(compile(self.source, str(self.file), "exec"))
            for number in range(len(session.items)):
                lines.seen.clear()
                start = time.process_time()
                sys.settrace(lines)
                passed = _run(session, number)
                sys.settrace(None)
                taken = time.process_time() - start
                rows.append((taken, sorted(lines.seen), passed))
                session.testsfailed = 0
            with os.fdopen(writer, "w") as out:
                json.dump(rows, out)
            return True

        child = _fork(run)
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        if not _ended_well(child):
            raise pytest.UsageError("the tests end the process as it is")
        rows = json.loads(text)
        tests: dict[int, list[int]] = defaultdict(list)
        for number in sorted(range(len(rows)), key=lambda n: rows[n][0]):
            for line in rows[number][1]:
                tests[line].append(number)
        failed = [number for number, row in enumerate(rows) if not row[2]]
        return _Found(failed, dict(tests), [row[0] for row in rows])


def _passes(
    session: pytest.Session,
    inversion: Inversion,
    numbers: list[int],
    seconds: list[float],
) -> bool:
    """Whether tests pass though a guard is inverted, in the seconds that they take."""

    def run() -> bool:
        _install(inversion.code)
        for number in numbers:
            limit = time.process_time() + _LEAST_S + _TIMES_LONGER * seconds[number]
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), -1))
            if not _run(session, number):
                return False
        return True

    return _ended_well(_fork(run))


def _run(session: pytest.Session, number: int) -> bool:
    """Run a test; whether none has failed so far."""
    item = session.items[number]
    session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return not session.testsfailed


def _fork(run: Callable[[], bool]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        passed = run()
    except BaseException:
        passed = False
    os._exit(0 if passed else 1)


def _ended_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def _numbers(text: str | None) -> set[int]:
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the file whose guards are inverted")
    parser.add_argument("tests", nargs="+", help="tests, as pytest takes them")
    parser.add_argument("-k", default="", help="which of the tests, as pytest takes it")
    parser.add_argument("--lines", help="only the guards of these, such as 7,12-20")
    arguments = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "ci"
    os.chdir(ROOT)
    plugin = Plugin(arguments.file.resolve(), _numbers(arguments.lines))
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Hypothesis is imported here already.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["-k", arguments.k]
    code = pytest.main([*options, *arguments.tests], plugins=[plugin])
    return int(code) or min(plugin.survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
