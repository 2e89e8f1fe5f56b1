"""Graphs: building, accessors, equality, and one error for each broken rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Export, Result, StateNext, ValueId, Witness
from poot.core.errors import (
    CompositeError,
    ConstPayloadError,
    GraphError,
    OperandCountError,
    OutputError,
    RedefinitionError,
    ResultCountError,
    ShapeError,
    StatePairError,
    StorageError,
    TypeMismatchError,
    UndefinedValueError,
)
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.indexing import DynamicSlice
from poot.core.source import Source, user_source
from poot.core.types import Slot, SlotKey, Storage, TensorType, ValueMeta, Weight
from poot.core.verify import verify

ADD, EXP = Binary(BinaryOp.ADD), Unary(UnaryOp.EXP)
F32_3 = TensorType((3,), dtypes.float32)
I32 = TensorType((), dtypes.int32)
LINE = Source("model.py", 41, "layer")


def small_graph() -> Graph:
    """%0, %1 inputs; %2 = exp(%0); %3 = %2 + %1; result %3."""
    builder = Builder()
    x, y = builder.input(F32_3), builder.input(F32_3)
    (e,) = builder.emit(EXP, (x,), source=LINE)
    (s,) = builder.emit(ADD, (e, y), source=LINE)
    builder.result(s)
    return builder.finish()


def with_values(graph: Graph, number: int, meta: ValueMeta) -> tuple[ValueMeta, ...]:
    return (*graph.values[:number], meta, *graph.values[number + 1 :])


def test_accessors():
    graph = small_graph()
    assert graph.inputs == (0, 1)
    assert graph.results == (3,)
    assert graph.result_types == (F32_3,)
    assert graph.input_types == (F32_3, F32_3)
    assert graph.definitions() == {2: 0, 3: 1}
    assert graph.uses() == {0: [0], 1: [1], 2: [1]}
    assert graph.source(1) == LINE
    assert graph.eqns[0].out == 2
    assert graph.type(Scalar.of(1, dtypes.int8)) == TensorType((), dtypes.int8)


def test_accessors_of_all_kinds_of_inputs_and_outputs():
    builder = Builder()
    w = builder.constant(F32_3, np.ones(3, np.float32), Weight("w"))
    p = builder.input(I32, Storage.SLOT, SlotKey("pos"), Slot("pos", 0, 9))
    s = builder.input(F32_3, Storage.STATE)
    (t,) = builder.emit(ADD, (s, w))
    builder.result(t)
    builder.state_next(s, t)
    builder.witness(p, "no room", LINE)
    builder.export("hidden", t)
    graph = builder.finish()
    assert graph.consts == (w,)
    assert graph.slots == (p,)
    assert graph.arguments == (p, s)
    assert graph.state == (StateNext(t, s),)
    assert graph.exports == {"hidden": t}
    assert graph.witnesses == (Witness(p, "no room"),)
    assert graph.witnesses[0].source == LINE


def test_equality_ignores_payloads_and_sources_and_hashes_alike():
    graph = small_graph()
    other = replace(graph, sources=())
    assert graph == other
    assert hash(graph) == hash(other)
    assert graph != replace(graph, outputs=(Result(ValueId(2)),))


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, 2)])
def test_literals_differ_by_bits(one, other):
    def graph(literal: float) -> Graph:
        builder = Builder()
        x = builder.input(F32_3)
        builder.result(*builder.emit(ADD, (x, Scalar.of(literal, dtypes.float32))))
        return builder.finish()

    assert graph(one) != graph(other)
    assert graph(float("nan")) == graph(float("nan"))


def test_use_before_definition():
    graph = small_graph()
    with pytest.raises(UndefinedValueError, match=r"equation 0 \(`Binary\[ADD\]`\)"):
        verify(replace(graph, eqns=graph.eqns[::-1], sources=(LINE, LINE)))


def test_error_names_the_users_line():
    graph = small_graph()
    with pytest.raises(UndefinedValueError, match=r"model\.py:41 \(layer\)"):
        verify(replace(graph, eqns=graph.eqns[::-1]))


def test_use_of_no_value():
    graph = small_graph()
    eqn = Eqn(EXP, (ValueId(9),), (ValueId(2),))
    with pytest.raises(UndefinedValueError, match="%9; the graph has 4 values"):
        verify(replace(graph, eqns=(eqn, graph.eqns[1])))


def test_builder_refuses_a_value_that_it_did_not_make():
    builder = Builder()
    with pytest.raises(UndefinedValueError, match="%5 is no value"):
        builder.emit(EXP, (ValueId(5),))


def test_value_that_nothing_defines():
    graph = small_graph()
    values = (*graph.values, ValueMeta(F32_3))
    with pytest.raises(UndefinedValueError, match="%4 is neither an input nor"):
        verify(replace(graph, values=values))


def test_output_that_is_no_value():
    graph = small_graph()
    with pytest.raises(UndefinedValueError, match="an output names %7"):
        verify(replace(graph, outputs=(Result(ValueId(7)),)))


def test_value_computed_twice():
    graph = small_graph()
    with pytest.raises(RedefinitionError, match="defines %2 again"):
        verify(replace(graph, eqns=(graph.eqns[0], *graph.eqns)))


def test_value_both_bound_and_computed():
    graph = small_graph()
    inputs = (*graph.inputs, ValueId(2))
    with pytest.raises(RedefinitionError, match="defines %2 again"):
        verify(replace(graph, inputs=inputs))


def test_input_bound_twice():
    graph = small_graph()
    with pytest.raises(RedefinitionError, match="%1 stands twice"):
        verify(replace(graph, inputs=(*graph.inputs, ValueId(1))))


def test_recorded_type_differs_from_the_rule():
    graph = small_graph()
    wrong = ValueMeta(TensorType((4,), dtypes.float32))
    with pytest.raises(
        TypeMismatchError, match=r"%2 is annotated f32\[4\] but the rule says f32\[3\]"
    ):
        verify(replace(graph, values=with_values(graph, 2, wrong)))


def test_operands_that_the_op_does_not_take():
    builder = Builder()
    x, y = builder.input(F32_3), builder.input(TensorType((4,), dtypes.float32))
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(4,\)"):
        builder.emit(ADD, (x, y))


@pytest.mark.parametrize(
    ("op", "count", "takes"),
    [
        (ADD, 1, "2"),
        (EXP, 2, "1"),
        (EXP, 0, "1"),
        (DynamicSlice((1,)), 0, "at least 1"),
    ],
)
def test_number_of_operands(op, count, takes):
    builder = Builder()
    x = builder.input(F32_3)
    with pytest.raises(
        OperandCountError, match=f"given {count} operands, takes {takes}"
    ):
        builder.emit(op, (x,) * count)


def test_errors_of_an_op_name_equation_and_line_when_a_graph_is_checked():
    graph = small_graph()
    wrong = ValueMeta(TensorType((4,), dtypes.float32))
    with pytest.raises(
        ShapeError, match=r"equation 1 \(`Binary\[ADD\]`\).*model\.py:41"
    ):
        verify(replace(graph, values=with_values(graph, 1, wrong)))


@pytest.mark.parametrize("count", [0, 2])
def test_number_of_results(count):
    graph = small_graph()
    eqn = Eqn(EXP, (ValueId(0),), (ValueId(2), ValueId(2))[:count])
    with pytest.raises(ResultCountError, match=f"has {count} results, its op gives 1"):
        verify(replace(graph, eqns=(eqn, graph.eqns[1])))


def test_input_cannot_be_computed():
    graph = small_graph()
    meta = ValueMeta(F32_3, Storage.COMPUTED)
    with pytest.raises(StorageError, match="input %0 has storage computed"):
        verify(replace(graph, values=with_values(graph, 0, meta)))


def test_computed_value_cannot_be_a_slot():
    graph = small_graph()
    meta = ValueMeta(F32_3, Storage.CONST)
    with pytest.raises(StorageError, match="%2 is computed but has storage const"):
        verify(replace(graph, values=with_values(graph, 2, meta)))


@pytest.mark.parametrize(
    ("storage", "slot"), [(Storage.SLOT, None), (Storage.DEVICE, Slot("pos"))]
)
def test_slot_and_its_kind_go_together(storage, slot):
    builder = Builder()
    builder.input(I32, storage, slot=slot)
    with pytest.raises(StorageError, match="go together"):
        builder.finish()


def test_witness_must_be_an_i32_scalar():
    builder = Builder()
    builder.witness(builder.input(F32_3), "bad")
    with pytest.raises(OutputError, match=r"witness %0 is f32\[3\], takes i32\[\]"):
        builder.finish()


def test_export_names_differ():
    builder = Builder()
    x = builder.input(F32_3)
    builder.export("h", x)
    builder.export("h", x)
    with pytest.raises(OutputError, match="two exports are called 'h'"):
        builder.finish()


def test_output_of_no_kind():
    graph = small_graph()
    with pytest.raises(OutputError, match="is no kind of output"):
        verify(replace(graph, outputs=(graph.eqns[0],)))


def test_state_without_next_value():
    builder = Builder()
    builder.input(F32_3, Storage.STATE)
    with pytest.raises(StatePairError, match="without a next value: %0"):
        builder.finish()


def test_next_value_of_no_state():
    builder = Builder()
    x = builder.input(F32_3)
    builder.state_next(x, x)
    with pytest.raises(StatePairError, match="is no state input"):
        builder.finish()


def test_two_next_values_of_one_state():
    builder = Builder()
    s = builder.input(F32_3, Storage.STATE)
    builder.state_next(s, s)
    builder.state_next(s, s)
    with pytest.raises(StatePairError, match="has a next value already"):
        builder.finish()


def test_state_and_next_value_of_one_type():
    builder = Builder()
    s, x = builder.input(F32_3, Storage.STATE), builder.input(I32)
    builder.state_next(s, x)
    with pytest.raises(StatePairError, match=r"is f32\[3\], its next value %1 i32\[\]"):
        builder.finish()


def test_payload_of_another_type():
    builder = Builder()
    builder.constant(F32_3, np.ones(4, np.float32))
    with pytest.raises(ConstPayloadError, match=r"is f32\[3\], its payload f32\[4\]"):
        builder.finish()


def test_payload_that_is_no_array():
    builder = Builder()
    builder.result(builder.constant(F32_3, [1.0, 2.0, 3.0]))
    with pytest.raises(ConstPayloadError, match="%0 is a list, takes an array"):
        builder.finish()


def test_payload_of_no_constant():
    graph = small_graph()
    payloads = {ValueId(0): np.ones(3, np.float32)}
    with pytest.raises(ConstPayloadError, match="%0 has a payload but is no constant"):
        verify(replace(graph, payloads=payloads))


def test_tracers_do_not_emit_composites():
    body = small_graph()
    builder = Builder()
    x = builder.input(F32_3)
    with pytest.raises(CompositeError, match="only passes make"):
        builder.emit(Fused(body), (x, x))


def test_passes_build_composites():
    body = small_graph()
    builder = Builder(composites=True)
    x = builder.input(F32_3)
    builder.result(*builder.emit(Fused(body), (x, x)))
    assert builder.finish().result_types == (F32_3,)


def test_region_takes_the_types_of_its_inputs():
    builder = Builder(composites=True)
    x = builder.input(I32)
    with pytest.raises(TypeMismatchError, match="the region takes"):
        builder.emit(Fused(small_graph()), (x, x))


def test_every_graph_error_is_a_value_error():
    for kind in GraphError.__subclasses__():
        assert issubclass(kind, ValueError)


def test_exports_compare_by_name_and_value():
    assert Export(ValueId(1), "a") != Export(ValueId(1), "b")


def test_user_source_is_this_line():
    source = user_source()
    assert source.file == __file__
    assert source.function == "test_user_source_is_this_line"
