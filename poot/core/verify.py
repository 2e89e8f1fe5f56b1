"""The invariants of the specification, one typed error a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Export, Result, StateNext, ValueId, Witness
from poot.core.errors import (
    ConstPayloadError,
    DTypeError,
    GraphError,
    OutputError,
    RedefinitionError,
    ResultCountError,
    ShapeError,
    StatePairError,
    StorageError,
    TypeMismatchError,
    UndefinedValueError,
)
from poot.core.types import Storage, TensorType

if TYPE_CHECKING:
    from poot.core.graph import Graph

_INPUT_STORAGES = (Storage.DEVICE, Storage.CONST, Storage.SLOT, Storage.STATE)
_RESULT_STORAGES = (Storage.DEVICE, Storage.COMPUTED)


def verify(graph: Graph) -> Graph:
    """The graph itself; a GraphError of some kind if it breaks a rule."""
    defined = _verify_inputs(graph)
    for index in range(len(graph.eqns)):
        _verify_eqn(graph, index, defined)
    _verify_table(graph, defined)
    _verify_outputs(graph, defined)
    _verify_state(graph)
    return graph


def _where(graph: Graph, index: int) -> str:
    return f"equation {index} (`{graph.eqns[index].op}`) made at {graph.source(index)}"


def _require_known(
    graph: Graph, value: ValueId, where: str | None = None, index: int = 0
) -> None:
    """`where` names the value; without it, equation `index` does."""
    if not 0 <= value < len(graph.values):
        raise UndefinedValueError(
            f"{where or _where(graph, index)} names %{value}; the graph has "
            f"{len(graph.values)} values"
        )


def _verify_inputs(graph: Graph) -> set[ValueId]:
    defined: set[ValueId] = set()
    for value in graph.inputs:
        _require_known(graph, value, "the input list")
        if value in defined:
            raise RedefinitionError(f"%{value} stands twice in the input list")
        defined.add(value)
        meta = graph.values[value]
        if meta.storage not in _INPUT_STORAGES:
            raise StorageError(f"input %{value} has storage {meta.storage.value}")
        if (meta.slot is not None) != (meta.storage is Storage.SLOT):
            raise StorageError(
                f"input %{value}: a slot kind and storage slot go together; given "
                f"{meta.slot} and {meta.storage.value}"
            )
    _verify_payloads(graph)
    return defined


def _verify_payloads(graph: Graph) -> None:
    for value, payload in graph.payloads.items():
        if value not in graph.inputs or (
            graph.values[value].storage is not Storage.CONST
        ):
            raise ConstPayloadError(f"%{value} has a payload but is no constant")
        if not (hasattr(payload, "shape") and hasattr(payload, "dtype")):
            raise ConstPayloadError(
                f"the payload of constant %{value} is a {type(payload).__name__}, "
                "takes an array"
            )
        given = TensorType(tuple(payload.shape), dtypes.as_dtype(payload.dtype))
        if given != graph.values[value].type:
            raise ConstPayloadError(
                f"constant %{value} is {graph.values[value].type}, its payload {given}"
            )


def _verify_eqn(graph: Graph, index: int, defined: set[ValueId]) -> None:
    eqn = graph.eqns[index]
    for operand in eqn.inputs:
        if isinstance(operand, Scalar):
            continue
        _require_known(graph, operand, index=index)
        if operand not in defined:
            raise UndefinedValueError(
                f"{_where(graph, index)} uses %{operand} before it is defined"
            )
    inferred = _inferred(graph, index)
    if len(inferred) != len(eqn.outs):
        raise ResultCountError(
            f"{_where(graph, index)} has {len(eqn.outs)} results, its op gives "
            f"{len(inferred)}"
        )
    for out, wanted in zip(eqn.outs, inferred, strict=True):
        _require_known(graph, out, index=index)
        if out in defined:
            raise RedefinitionError(f"{_where(graph, index)} defines %{out} again")
        defined.add(out)
        meta = graph.values[out]
        if meta.type != wanted:
            raise TypeMismatchError(
                f"%{out} is annotated {meta.type} but the rule says {wanted} in "
                f"{_where(graph, index)}"
            )
        if meta.storage not in _RESULT_STORAGES:
            raise StorageError(
                f"%{out} is computed but has storage {meta.storage.value} in "
                f"{_where(graph, index)}"
            )


def _inferred(graph: Graph, index: int) -> tuple[TensorType, ...]:
    """What the op says its results are; its errors name the equation too."""
    eqn = graph.eqns[index]
    try:
        return eqn.op.infer_all(*(graph.type(operand) for operand in eqn.inputs))
    except (ShapeError, DTypeError, GraphError) as error:
        raise type(error)(f"{error}; in {_where(graph, index)}") from None


def _verify_table(graph: Graph, defined: set[ValueId]) -> None:
    if len(defined) != len(graph.values):
        lost = next(v for v in range(len(graph.values)) if v not in defined)
        raise UndefinedValueError(f"%{lost} is neither an input nor computed")


def _verify_outputs(graph: Graph, defined: set[ValueId]) -> None:
    names: set[str] = set()
    for output in graph.outputs:
        if not isinstance(output, Result | Witness | Export | StateNext):
            raise OutputError(f"{output!r} is no kind of output")
        _require_known(graph, output.value, "an output")
        if output.value not in defined:
            raise UndefinedValueError(f"output %{output.value} is never defined")
        if isinstance(output, Witness):
            wanted = TensorType((), dtypes.int32)
            if graph.values[output.value].type != wanted:
                raise OutputError(
                    f"witness %{output.value} is {graph.values[output.value].type}, "
                    f"takes {wanted}"
                )
        elif isinstance(output, Export):
            if output.name in names:
                raise OutputError(f"two exports are called {output.name!r}")
            names.add(output.name)


def _verify_state(graph: Graph) -> None:
    open_inputs = {v for v in graph.inputs if graph.values[v].storage is Storage.STATE}
    for pair in graph.state:
        if pair.input not in open_inputs:
            raise StatePairError(
                f"%{pair.value} is to overwrite %{pair.input}, which is no state input "
                "or has a next value already"
            )
        open_inputs.remove(pair.input)
        given, wanted = graph.type(pair.value), graph.type(pair.input)
        if given != wanted:
            raise StatePairError(
                f"state %{pair.input} is {wanted}, its next value %{pair.value} {given}"
            )
    if open_inputs:
        alone = ", ".join(f"%{v}" for v in sorted(open_inputs))
        raise StatePairError(f"state inputs without a next value: {alone}")
