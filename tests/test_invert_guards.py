"""What `tools/invert_guards.py` takes for a condition."""

from __future__ import annotations

import ast

from tools.invert_guards import guards

SOURCE = """
TABLE = [word for word in WORDS if word.isalpha()]


def judge(graph, log) -> bool:
    assert graph.size > 0
    if graph.first and not (graph.last or log):
        return True
    while graph.left:
        step()
    while True:
        step()
    found = [eqn for eqn in graph if eqn.ready]
    kept = any(eqn.old for eqn in found)
    count = 1 + (graph in found)
    match graph:
        case Graph() if log.full:
            count = 2 if isinstance(log, Log) else 3
    return graph.good


def make(graph):
    return graph.good
"""


def test_conditions_inside_functions():
    assert [ast.unparse(guard) for guard in guards(ast.parse(SOURCE))] == [
        "graph.first",
        "not (graph.last or log)",
        "graph.last",
        "log",
        "graph.left",
        "eqn.ready",
        "any((eqn.old for eqn in found))",
        "eqn.old",
        "graph in found",
        "log.full",
        "isinstance(log, Log)",
        "graph.good",
    ]
