"""Edits of graphs: what a commit does, keeps and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.errors import (
    CycleError,
    LostOutputError,
    OutputError,
    TypeMismatchError,
    UndefinedValueError,
)
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.elementwise import Binary, BinaryOp, Cast, Unary, UnaryOp
from poot.core.oracle import evaluate, evaluate_all
from poot.core.source import Source
from poot.core.types import Storage, TensorType

ADD, MUL = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL)
EXP, NEG = Unary(UnaryOp.EXP), Unary(UnaryOp.NEG)
F32_3 = TensorType((3,), dtypes.float32)
LINES = [Source("model.py", line, "f") for line in (1, 2, 3)]


def chain() -> Graph:
    """%1 = exp(%0); %2 = neg(%1); %3 = %2 + %1; result %3."""
    builder = Builder()
    x = builder.input(F32_3)
    (e,) = builder.emit(EXP, (x,), LINES[0])
    (n,) = builder.emit(NEG, (e,), LINES[1])
    (s,) = builder.emit(ADD, (n, e), LINES[2])
    builder.result(s)
    return builder.finish()


def contract_graph() -> Graph:
    """A graph with a constant and each kind of output."""
    builder = Builder()
    w = builder.constant(F32_3, np.arange(3, dtype=np.float32))
    s = builder.input(F32_3, Storage.STATE)
    f = builder.input(TensorType((), dtypes.int32))
    (t,) = builder.emit(ADD, (s, w))
    (u,) = builder.emit(MUL, (t, w))
    (g,) = builder.emit(NEG, (f,))
    builder.result(u)
    builder.witness(g, "flag is set", LINES[0])
    builder.export("sum", t)
    builder.state_next(s, t)
    return builder.finish()


def test_empty_edit_changes_nothing():
    for graph in (chain(), contract_graph()):
        assert graph.edit().commit() == graph


def test_replace_redirects_every_use_and_renumbers():
    graph = chain()
    edit = graph.edit()
    (m,) = edit.emit(MUL, (ValueId(0), ValueId(0)), at=0, source=LINES[1])
    edit.replace(ValueId(1), m)
    edit.remove(0)
    changed = edit.commit()
    x = np.array([1, 2, 3], np.float32)
    assert [str(eqn.op) for eqn in changed.eqns] == [
        "Binary[MUL]",
        "Unary[NEG]",
        "Binary[ADD]",
    ]
    assert len(changed.values) == 4
    assert (evaluate(changed, x)[0] == 0).all()
    assert changed.sources == (LINES[1], LINES[1], LINES[2])


def test_replacement_by_a_literal():
    graph = chain()
    edit = graph.edit()
    edit.replace(ValueId(2), Scalar.of(2.0, dtypes.float32))
    edit.remove(1)
    changed = edit.commit()
    x = np.zeros(3, np.float32)
    assert (evaluate(changed, x)[0] == 3).all()


def test_replacements_chain():
    graph = chain()
    edit = graph.edit()
    edit.replace(ValueId(2), ValueId(1))
    edit.replace(ValueId(1), ValueId(0))
    edit.remove(0)
    edit.remove(1)
    (eqn,) = edit.commit().eqns
    assert eqn.inputs == (0, 0)


def test_added_equations_are_put_in_order():
    graph = chain()
    edit = graph.edit()
    # Emitted for the front, but it needs the last value.
    (m,) = edit.emit(MUL, (ValueId(3), ValueId(3)), at=-1)
    edit.emit(NEG, (m,), at=-1)
    changed = edit.commit()
    ops = [str(eqn.op) for eqn in changed.eqns]
    assert ops[3:] == ["Binary[MUL]", "Unary[NEG]"]


def test_old_order_is_kept():
    graph = contract_graph()
    edit = graph.edit()
    edit.emit(EXP, (ValueId(1),), at=0)
    ops = [str(eqn.op) for eqn in edit.commit().eqns]
    assert ops == ["Binary[ADD]", "Unary[EXP]", "Binary[MUL]", "Unary[NEG]"]


def test_removed_equation_that_is_still_used():
    edit = chain().edit()
    edit.remove(1)
    with pytest.raises(UndefinedValueError, match="%2 is used, but the equation"):
        edit.commit()


def test_cycle_of_equations():
    graph = chain()
    edit = graph.edit()
    (m,) = edit.emit(MUL, (ValueId(3), ValueId(3)), at=2)
    edit.replace(ValueId(1), m)
    with pytest.raises(CycleError, match="needs its own result"):
        edit.commit()


def test_cycle_of_replacements():
    edit = chain().edit()
    edit.replace(ValueId(1), ValueId(2))
    edit.replace(ValueId(2), ValueId(1))
    with pytest.raises(CycleError, match="replaced by itself"):
        edit.commit()


def test_output_replaced_by_a_literal():
    edit = chain().edit()
    edit.replace(ValueId(3), Scalar.of(0.0, dtypes.float32))
    with pytest.raises(OutputError, match="%3 was replaced by a literal"):
        edit.commit()


def test_result_type_must_stay():
    edit = chain().edit()
    (h,) = edit.emit(Cast(dtypes.float16), (ValueId(3),), at=2)
    edit.replace(ValueId(3), h)
    with pytest.raises((LostOutputError, CycleError)):
        edit.commit()
    edit = chain().edit()
    (h,) = edit.emit(Cast(dtypes.float16), (ValueId(2),), at=2)
    edit.replace(ValueId(3), h)
    with pytest.raises(LostOutputError, match=r"result 0: f32\[3\]"):
        edit.commit()


@pytest.mark.parametrize(
    ("index", "lost"),
    [
        (0, r"result 0: f32\[3\]"),
        (1, "witness 'flag is set'"),
        (2, r"export 'sum': f32\[3\]"),
        (3, "state %1"),
    ],
)
def test_no_output_may_be_lost(index, lost):
    edit = contract_graph().edit()
    edit.drop_output(index)
    with pytest.raises(LostOutputError, match=lost):
        edit.commit()


def test_outputs_follow_replacements():
    graph = contract_graph()
    edit = graph.edit()
    state, weight = ValueId(1), ValueId(0)
    (t,) = edit.emit(ADD, (weight, state), at=0)
    edit.replace(ValueId(3), t)
    edit.remove(0)
    changed = edit.commit()
    args = (np.ones(3, np.float32), 0)
    before, after = evaluate_all(graph, *args), evaluate_all(changed, *args)
    assert (before.results[0] == after.results[0]).all()
    assert (before.exports["sum"] == after.exports["sum"]).all()
    assert (before.state[0] == after.state[0]).all()
    assert changed.witnesses[0].source == LINES[0]


def test_payloads_follow_their_constants():
    changed = contract_graph().edit().commit()
    (const,) = changed.consts
    assert (changed.payloads[const] == np.arange(3)).all()


def test_composite_in_place_of_a_chain():
    graph = chain()
    edit = graph.edit()
    (r,) = edit.emit(Fused(chain()), (ValueId(0),), at=2)
    edit.replace(ValueId(3), r)
    for index in range(3):
        edit.remove(index)
    changed = edit.commit()
    x = np.array([-1, 0, 2], np.float32)
    assert len(changed.eqns) == 1
    assert (evaluate(changed, x)[0] == evaluate(graph, x)[0]).all()


def test_computed_storage_of_an_added_value():
    edit = chain().edit()
    (c,) = edit.emit(EXP, (ValueId(0),), at=0, storage=Storage.COMPUTED)
    edit.replace(ValueId(1), c)
    edit.remove(0)
    changed = edit.commit()
    assert changed.values[1].storage is Storage.COMPUTED


def test_wrong_operand_type_in_an_edit():
    edit = contract_graph().edit()
    with pytest.raises(TypeMismatchError):
        edit.emit(Fused(chain()), (ValueId(2),), at=0)
