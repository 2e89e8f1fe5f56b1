"""Prints a graph in the one fixed form that `parse` reads."""

from __future__ import annotations

import enum
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.dtypes import DType, Scalar
from poot.core.equation import (
    Eqn,
    Export,
    GraphOutput,
    Operand,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.op import CustomRule, Op, Parameters, parameters
from poot.core.types import Named, SlotKey, Storage, ValueMeta, Weight

if TYPE_CHECKING:
    from poot.core.graph import Graph


def payload_digest(payload: Any) -> str:
    """`sha256:` and 16 hex digits of a constant's dtype, shape and bytes."""
    array = np.asarray(payload)
    digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    digest.update(array.tobytes())
    return "sha256:" + digest.hexdigest()[:16]


def print_graph(graph: Graph, indent: str = "") -> str:
    """The text of a graph; nested regions are indented."""
    inner = indent + "  "
    lines = ["graph {"]
    lines += [inner + _input(graph, value) for value in graph.inputs]
    lines += [inner + _eqn(graph, eqn, inner) for eqn in graph.eqns]
    lines += [inner + _output(output) for output in graph.outputs]
    return "\n".join([*lines, indent + "}"])


def _identity(meta: ValueMeta) -> str:
    match meta.identity:
        case Named(name):
            return f" named {json.dumps(name)}"
        case SlotKey(name):
            return f" key {json.dumps(name)}"
        case Weight(ref):
            return f" weight {json.dumps(ref)}"
    return ""


def _input(graph: Graph, value: ValueId) -> str:
    meta = graph.values[value]
    text = f"{meta.storage.value} %{value}: {meta.type}"
    if meta.slot is not None:
        text += f" kind {json.dumps(meta.slot.kind)}"
        if meta.slot.low is not None:
            text += f" low {meta.slot.low}"
        if meta.slot.high is not None:
            text += f" high {meta.slot.high}"
    if meta.storage is Storage.CONST and value in graph.payloads:
        return f"{text} weight {json.dumps(payload_digest(graph.payloads[value]))}"
    return text + _identity(meta)


def print_operand(operand: Operand) -> str:
    """A literal, or the name of a value."""
    return str(operand) if isinstance(operand, Scalar) else f"%{operand}"


def _eqn(graph: Graph, eqn: Eqn, indent: str) -> str:
    outs = []
    for out in eqn.outs:
        meta = graph.values[out]
        storage = " computed" if meta.storage is Storage.COMPUTED else ""
        outs.append(f"%{out}: {meta.type}{storage}{_identity(meta)}")
    params = _named(eqn.op, indent)
    operands = ", ".join(print_operand(operand) for operand in eqn.inputs)
    head = f"{', '.join(outs)} = {eqn.op.name}"
    return f"{head}{f'[{params}]' if params else ''}({operands})"


def _named(op: Op | Parameters, indent: str) -> str:
    return ", ".join(
        f"{name}={_parameter(value, indent)}" for name, value in parameters(op).items()
    )


def _parameter(value: Any, indent: str) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int() | Scalar():
            return str(value)
        case str():
            return json.dumps(value)
        case enum.Enum():
            return str(value.value)
        case DType():
            return value.name
        case tuple():
            return "(" + ", ".join(_parameter(v, indent) for v in value) + ")"
        case CustomRule(name):
            return json.dumps(name)
        case Parameters():
            return f"({_named(value, indent)})"
        case Op():
            return f"{value.name}[{_named(value, indent)}]"
    return print_graph(value, indent)


def _output(output: GraphOutput) -> str:
    match output:
        case Witness(value, message):
            return f"witness %{value} {json.dumps(message)}"
        case Export(value, name):
            return f"export %{value} {json.dumps(name)}"
        case StateNext(value, input):
            return f"next %{input} = %{value}"
    return f"result %{output.value}"
