"""The printed form of graphs, and reading it back."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.errors import (
    ConstPayloadError,
    DTypeError,
    GraphError,
    OperandCountError,
    ParseError,
    ShapeError,
    TypeMismatchError,
    UndefinedValueError,
)
from poot.core.graph import Graph
from poot.core.ops.composite import Fused, FusedRow
from poot.core.ops.elementwise import Binary, BinaryOp, Cast, Unary, UnaryOp
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.matmul import MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Iota, Pad, Slice
from poot.core.oracle import evaluate
from poot.core.parse import Reader
from poot.core.text import payload_digest
from poot.core.types import Named, Slot, SlotKey, Storage, TensorType, Weight
from tests.op_row import OpRow
from tests.op_table import ROWS, graph_of

ADD = Binary(BinaryOp.ADD)
F32_3 = TensorType((3,), dtypes.float32)
WEIGHT = np.array([1, 2, 3], np.float32)

EVERYTHING = """\
graph {
  const %0: f32[3] weight "sha256:e83a3acec5152c66"
  const %1: f32[3] weight "blk.0/q"
  slot %2: i32[] kind "pos" low 0 high 511 key "the \\"position\\""
  state %3: f32[3] named "cache[0]"
  device %4: f32[2,3] named "x"
  %5: f32[3] = binary[op=add](%3, %0)
  %6: f32[3] computed = unary[op=exp](%5)
  %7: f32[2,3] named "y" = binary[op=mul](%4, 0x7fc00001:f32)
  result %7
  witness %2 "position \\"%d\\" is\\nout of range"
  export %6 "hidden"
  next %3 = %5
}"""


def everything() -> Graph:
    """Each storage, identity and kind of output."""
    builder = Builder()
    w = builder.constant(F32_3, WEIGHT)
    builder.constant(F32_3, None, Weight("blk.0/q"))
    i32 = TensorType((), dtypes.int32)
    p = builder.input(i32, Storage.SLOT, SlotKey('the "position"'), Slot("pos", 0, 511))
    s = builder.input(F32_3, Storage.STATE, Named("cache[0]"))
    x = builder.input(TensorType((2, 3), dtypes.float32), identity=Named("x"))
    (t,) = builder.emit(ADD, (s, w))
    edit_value = builder.emit(Unary(UnaryOp.EXP), (t,))[0]
    nan = Scalar(dtypes.float32, 0x7FC00001)
    (y,) = builder.emit(Binary(BinaryOp.MUL), (x, nan), identity=Named("y"))
    builder.result(y)
    builder.witness(p, 'position "%d" is\nout of range')
    builder.export("hidden", edit_value)
    builder.state_next(s, t)
    return builder.finish()


def scalar_graph(literal: Scalar) -> Graph:
    builder = Builder()
    x = builder.input(TensorType((2,), literal.dtype))
    builder.result(*builder.emit(Binary(BinaryOp.MAX), (x, literal)))
    return builder.finish()


def test_text_of_everything():
    text = str(everything())
    digest = payload_digest(WEIGHT)
    expected = EVERYTHING.replace("sha256:e83a3acec5152c66", digest)
    assert text == expected.replace(" computed", "")


def test_everything_parses_back():
    graph = Graph.parse(EVERYTHING)
    assert str(graph) == EVERYTHING
    assert graph.values[6].storage is Storage.COMPUTED
    assert graph.values[2].slot == Slot("pos", 0, 511)
    assert graph.values[2].identity == SlotKey('the "position"')
    assert graph.witnesses[0].message == 'position "%d" is\nout of range'


def test_payloads_are_given_in_the_order_of_printing():
    graph = everything()
    other = np.zeros(3, np.float32)
    parsed = Graph.parse(str(graph), consts=[WEIGHT, other])
    assert parsed.payloads[0] is WEIGHT
    assert parsed.payloads[1] is other
    assert parsed.witnesses == graph.witnesses


def test_digest_tells_payloads_apart():
    assert payload_digest(WEIGHT) != payload_digest(-WEIGHT)
    assert payload_digest(WEIGHT) != payload_digest(WEIGHT.view(np.int32))
    assert payload_digest(WEIGHT) != payload_digest(WEIGHT[:, np.newaxis])


def one_eqn(eqn: str) -> str:
    """The text of a graph with one equation, on its third line."""
    return f"graph {{\n  device %0: f32[3]\n  %1: f32[3] = {eqn}\n  result %1\n}}"


LITERALS = [
    Scalar.of(value, dtypes.by_name(name))
    for name in ("f16", "bf16", "f32", "f64")
    for value in (0.0, -0.0, 1.5, -1e-7, 3e4, float("inf"), float("-inf"), 0.1)
]
LITERALS += [
    Scalar(dtypes.float32, 0x7FC00000),
    Scalar(dtypes.float32, 0xFFC00000),
    Scalar(dtypes.float32, 0x7F800001),
    Scalar(dtypes.float64, 0x7FF8000000000001),
    Scalar(dtypes.float16, 0x7E01),
    Scalar(dtypes.bfloat16, 0xFFC1),
    Scalar(dtypes.float32, 1),
    Scalar.of(2**63, dtypes.uint64),
    Scalar.of(2**64 - 1, dtypes.uint64),
    Scalar.of(-(2**63), dtypes.int64),
    Scalar.of(-128, dtypes.int8),
    Scalar.of(True, dtypes.bool_),
    Scalar.of(1e300, dtypes.float64),
    Scalar.of(5e-324, dtypes.float64),
]


@pytest.mark.parametrize("literal", LITERALS, ids=str)
def test_literals_keep_their_bits(literal):
    graph = scalar_graph(literal)
    parsed = Graph.parse(str(graph))
    assert parsed == graph
    assert parsed.eqns[0].inputs[1] == literal


def test_parameters_of_every_kind():
    builder = Builder()
    x = builder.input(TensorType((4, 3), dtypes.bfloat16))
    zero = Scalar.of(0, dtypes.bfloat16)
    config = ((1, -1, 0), (0, 2, 3))
    (p,) = builder.emit(Pad(config), (x, zero))
    (s,) = builder.emit(Slice(1, 0, 3, 2), (p,))
    (c,) = builder.emit(Cast(dtypes.float8_e4m3fn), (s,))
    (r,) = builder.emit(Reduce(ReduceOp.SUM, 0, True), (x,))
    (i,) = builder.emit(Iota(dtypes.int32, (2,), 0), ())
    (g,) = builder.emit(Gather(0, GatherMode.FILL), (x, i))
    (t,) = builder.emit(Iota(dtypes.bfloat16, (3, 1), 0), ())
    (m,) = builder.emit(MatMul(dtypes.float32), (g, t))
    (n,) = builder.emit(MatMul(), (g, t))
    for value in (c, r, m, n):
        builder.result(value)
    graph = builder.finish()
    assert Graph.parse(str(graph)) == graph
    assert "pad[config=((1, -1, 0), (0, 2, 3))](%0, 0.0:bf16)" in str(graph)
    assert "matmul[out=none]" in str(graph)
    assert "reduce[op=sum, axis=0, keepdim=true]" in str(graph)


def nested_graph() -> Graph:
    inner = Builder()
    a = inner.input(F32_3)
    inner.result(*inner.emit(ADD, (a, Scalar.of(float("nan"), dtypes.float32))))
    middle = Builder(composites=True)
    b = middle.input(F32_3)
    middle.result(*middle.emit(Fused(inner.finish()), (b,)))
    outer = Builder(composites=True)
    c = outer.input(F32_3)
    outer.result(*outer.emit(FusedRow(middle.finish()), (c,)))
    return outer.finish()


def test_nested_regions():
    graph = nested_graph()
    text = str(graph)
    parsed = Graph.parse(text)
    assert parsed == graph
    assert str(parsed) == text
    assert "      result" in text
    assert np.isnan(evaluate(parsed, np.ones(3, np.float32))[0]).all()


def test_scalar_and_empty_shapes():
    builder = Builder()
    x = builder.input(TensorType((), dtypes.float32))
    y = builder.input(TensorType((0, 3), dtypes.float32))
    builder.result(*builder.emit(ADD, (x, y)))
    graph = builder.finish()
    assert "f32[]" in str(graph)
    assert "f32[0,3]" in str(graph)
    assert Graph.parse(str(graph)) == graph


def test_spacing_does_not_matter():
    text = str(nested_graph())
    assert Graph.parse(" ".join(text.split())) == nested_graph()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected 'graph', found 'the end'"),
        ("graph {\n  device %0 f32[3]\n}", "line 2: expected ':', found 'f32'"),
        ("graph {\n  device %0: f32[3\n}", "line 3: expected ',', found '}'"),
        ("graph {\n\n  ?\n}", r"line 3: expected a token, found '\?"),
        ("graph {\n  device %0: f33[3]\n}", "line 2: no dtype is called 'f33'"),
        ("graph {\n  device %0: f32[-3]\n}", "line 2: a shape has no negative"),
        (
            "graph {\n  device %0: f32[]\n  %1: f32[] = binary[op=add](%0, 1:f33)\n}",
            "line 3: no dtype is called 'f33'",
        ),
        (
            "graph {\n  device %0: f32[]\n  %1: f33[] = cast[to=f33](%0)\n}",
            "line 3: no dtype is called 'f33'",
        ),
        ("graph {\n} result", "line 2: expected the end of the text, found 'result'"),
        ("graph {\n  slot %0: i32[] kind pos\n}", "line 2: expected a string"),
        ("graph {\n  device %1: f32[]\n}", "not numbered from %0"),
        (
            "graph {\n  device %0: f32[]\n  device %0: f32[]\n}",
            "line 3: %0 is defined twice",
        ),
        (
            "graph {\n  device %0: f32[]\n  return %0\n}",
            "line 3: 'return' starts no line",
        ),
        ("graph {\n  %0: f32[] = exp()\n}", "line 2: no op is called 'exp'; known: "),
        (
            "graph {\n  device %0: f32[]\n  %1: f32[] = unary[op=foo](%0)\n}",
            "line 3: unary.op is 'foo', takes one of neg, abs",
        ),
        (
            "graph {\n  device %0: f32[1]\n  %1: f32[1] = reverse[axis=0](%0)\n}",
            r"line 3: reverse has parameters \(axis\), takes \(axes\)",
        ),
        (
            "graph {\n  device %0: f32[1]\n  %1: f32[1] = reverse[axes=all](%0)\n}",
            "line 3: reverse.axes does not take the word 'all'",
        ),
        (one_eqn("cast[to=f32, to=f16](%0)"), "line 3: cast has a parameter twice"),
        (one_eqn('cast[to="f32"](%0)'), "line 3: cast.to is f32, takes DType"),
        (one_eqn("fused[body=3](%0)"), "line 3: fused.body is 3, takes Graph"),
        (
            one_eqn("reshape[shape=3](%0)"),
            r"line 3: reshape.shape is 3, takes tuple\[int, \.\.\.\]",
        ),
        (
            one_eqn("pad[config=((1, 2))](%0, 0.0:f32)"),
            r"line 3: pad.config is \(\(1, 2\),\), takes tuple\[tuple\[int, int, int\]",
        ),
        (
            one_eqn("reduce[op=sum, axis=(0), keepdim=true](%0)"),
            r"line 3: reduce.axis is \(0,\), takes int",
        ),
        (
            one_eqn("reduce[op=sum, axis=0, keepdim=1](%0)"),
            "line 3: reduce.keepdim is 1, takes bool",
        ),
        (
            one_eqn("matmul[out=1](%0, %0)"),
            "line 3: matmul.out is 1, takes DType or NoneType",
        ),
        (one_eqn("binary[op=add](%0, 300:i8)"), "line 3: 300 does not fit i8"),
        (one_eqn("binary[op=add](%0, 2:bool)"), "line 3: 2 does not fit bool"),
        (one_eqn("binary[op=add](%0, 1.5:i8)"), "line 3: 1.5 is no element of i8"),
        (one_eqn("binary[op=add](%0, inf:i8)"), "line 3: inf is no element of i8"),
        (
            one_eqn("binary[op=add](%0, 0x12345:f16)"),
            "line 3: 0x12345 are no 16 bits of f16",
        ),
    ],
)
def test_parse_errors_say_where_and_what(text, message):
    with pytest.raises(ParseError, match=message):
        Graph.parse(text)


@pytest.mark.parametrize(
    ("eqn", "error"),
    [
        ("binary[op=add](%0)", OperandCountError),
        ("binary[op=add](%0, 1:i32)", DTypeError),
        ("reshape[shape=(4)](%0)", ShapeError),
        ("unary[op=exp](%2)", UndefinedValueError),
        ("fused[body=graph { device %0: f32[4] result %0 }](%0)", TypeMismatchError),
    ],
)
def test_errors_of_equations_name_the_line_of_the_text(eqn, error):
    with pytest.raises(error, match=r"equation 0 .*<graph text>:3"):
        Graph.parse(one_eqn(eqn))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("%1: f32[3] = unary[op=isnan](%0)", TypeMismatchError),
        ("%1: f32[3] = unary[op=exp](%1)", UndefinedValueError),
    ],
)
def test_nested_regions_are_checked_too(body, error):
    region = f"graph {{ device %0: f32[3] {body} result %1 }}"
    with pytest.raises(error):
        Graph.parse(one_eqn(f"fused[body={region}](%0)"))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_primitive_parses_back(row: OpRow):
    for dtype in row.dtypes:
        for case in row.cases(dtype):
            graph = graph_of(case)
            text = str(graph)
            parsed = Graph.parse(text)
            assert parsed == graph and str(parsed) == text


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.bits <= 16], ids=str)
def test_literals_of_small_dtypes_keep_their_bits(dtype: DType):
    # Of the 16-bit ones every seventh, which leaves out no exponent and no sign.
    codes = range(
        0, 2 if dtype.is_bool else 1 << dtype.bits, 7 if dtype.bits > 8 else 1
    )
    literals = [Scalar(dtype, bits) for bits in codes]
    operands = " ".join(f"({literal})" for literal in literals)
    reader = Reader(operands)
    for literal in literals:
        reader.take("(")
        assert reader.scalar() == literal
        reader.take(")")


def test_text_of_an_ill_formed_graph_is_refused():
    text = "graph {\n  device %0: f32[3]\n  %1: f32[4] = unary[op=exp](%0)\n}"
    with pytest.raises(GraphError, match=r"%1 is annotated f32\[4\]"):
        Graph.parse(text)


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_payloads(count):
    with pytest.raises(ParseError, match=f"{count} constants given, the text has 2"):
        Graph.parse(str(everything()), consts=[WEIGHT] * count)


def test_payload_of_another_type():
    with pytest.raises(ConstPayloadError):
        Graph.parse(str(everything()), consts=[WEIGHT.astype(np.float64)] * 2)
