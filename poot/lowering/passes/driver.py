"""Passes and rewrites, and the log of what they did and did not do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from poot.core.dtypes import Scalar
from poot.core.equation import Operand
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.control import ControlOp
from poot.core.text import print_operand
from poot.lowering.device_info import DeviceInfo


class Numerics(enum.IntEnum):
    """How far a rewrite may change results."""

    EXACT = 0  # no bit changes
    UNFUSED = 1  # a rounding between two operations may be left out
    REASSOCIATING = 2  # sums and contractions may be ordered otherwise
    NARROWING = 3  # something is calculated in a narrower dtype


class Reason(enum.Enum):
    """Why a rewrite declined."""

    OPERAND_ORDER = "operand-order"
    LITERAL_BITS = "literal-bits"
    IS_OUTPUT = "is-output"
    OTHER_RESULT_USED = "other-result-used"
    OPERAND_LIMIT = "operand-limit"
    RESULT_LIMIT = "result-limit"
    SIZE_LIMIT = "size-limit"
    RECOMPUTE = "recompute"
    OTHER_SHAPE = "other-shape"
    ORDER = "order"
    OTHER_ROWS = "other-rows"
    OPERAND_SHAPE = "operand-shape"
    LONG_ROW = "long-row"
    NOT_LAST_AXIS = "not-last-axis"
    NO_PEAK = "no-peak"
    OTHER_TOTAL = "other-total"
    OTHER_BASE = "other-base"
    SHARES_USED = "shares-used"
    SHARES_CHANGED = "shares-changed"
    NO_PRODUCTS = "no-products"
    SCORES_USED = "scores-used"
    OTHER_AXES = "other-axes"
    OTHER_DTYPE = "other-dtype"
    BOUNDARY = "boundary"
    SEVERAL_READERS = "several-readers"
    CHANGED_SHAPE = "changed-shape"
    KEPT = "kept"
    TAKEN = "taken"
    WIDENS = "widens"
    NARROWS = "narrows"
    AXIS_ORDER = "axis-order"
    NOT_FIRST_AXIS = "not-first-axis"
    OTHER_LHS = "other-lhs"
    OTHER_TYPE = "other-type"
    MANY_ROWS = "many-rows"
    SHARED_MEMORY = "shared-memory"
    NOT_LHS = "not-lhs"
    READS_BOTH = "reads-both"
    SLOT_RANGE = "slot-range"
    OVERWRITTEN = "overwritten"
    PART_OF_WORD = "part-of-word"
    DEVICE = "device"
    SHARED = "shared"
    SIGN = "sign"
    PARTNER = "partner"
    CROSSED = "crossed"
    TABLES = "tables"
    OTHER_SOURCE = "other-source"
    REST = "rest"
    FLUSHED = "flushed"
    SIGNED_ZERO = "signed-zero"
    NOT_FINITE = "not-finite"
    ROUNDED = "rounded"
    SUBNORMAL = "subnormal"
    NOT_BOOL = "not-bool"
    APPROXIMATE = "approximate"
    ACROSS_PARTS = "across-parts"
    SMALL_GAIN = "small-gain"
    LIFETIME = "lifetime"
    WHOLE_VECTORS = "whole-vectors"
    NOT_EACH_ROW = "not-each-row"
    NOT_FILLED = "not-filled"
    LARGE_TABLE = "large-table"


REASONS = {
    Reason.OPERAND_ORDER: "an equation of the same op has these operands in another "
    "order, which may change the payload of a NaN",
    Reason.LITERAL_BITS: "a twin has a literal of equal value and other bits",
    Reason.IS_OUTPUT: "nobody reads it in the graph, but it is an output",
    Reason.OTHER_RESULT_USED: "another result of the equation is used",
    Reason.OPERAND_LIMIT: "the kernel would have too many operands",
    Reason.RESULT_LIMIT: "the kernel would have too many results",
    Reason.SIZE_LIMIT: "the kernel would be too large",
    Reason.RECOMPUTE: "it would be computed more often than it is now",
    Reason.OTHER_SHAPE: "others read it too, and its shape is not that of the results",
    Reason.ORDER: "what stands between needs the one and feeds the other",
    Reason.OTHER_ROWS: "it is not over the same rows",
    Reason.OPERAND_SHAPE: "an operand does not repeat along whole rows or columns",
    Reason.LONG_ROW: "the rows are so long and few that they are reduced in stages",
    Reason.NOT_LAST_AXIS: "the reduced axis is not the last",
    Reason.NO_PEAK: "what exp takes is not below the largest of the same scores",
    Reason.OTHER_TOTAL: "the exponentials are not divided by their own sum",
    Reason.OTHER_BASE: "the powers are of another base than e",
    Reason.SHARES_USED: "the exponentials or shares are read elsewhere too",
    Reason.SHARES_CHANGED: "the shares are changed before they weigh the values",
    Reason.NO_PRODUCTS: "no contraction of queries and keys gives the scores",
    Reason.SCORES_USED: "the scores are read elsewhere too",
    Reason.OTHER_AXES: "its axes are not those of queries, keys and values",
    Reason.OTHER_DTYPE: "it is not of a dtype that the kernel takes",
    Reason.BOUNDARY: "its op cannot be part of the kernel",
    Reason.SEVERAL_READERS: "too many values before it are read elsewhere too",
    Reason.CHANGED_SHAPE: "its result is of another shape than what it reads",
    Reason.KEPT: "what stands before it is an output of the graph too",
    Reason.TAKEN: "another kernel computes it already",
    Reason.WIDENS: "a wider copy would be stored of what is narrow",
    Reason.NARROWS: "the cast is no exact one of f16 or bf16 to f32",
    Reason.AXIS_ORDER: "axes of the result would come in another order",
    Reason.NOT_FIRST_AXIS: "it is not along the first axis",
    Reason.OTHER_LHS: "they contract other axes of the operand that they share",
    Reason.MANY_ROWS: "computing so many rows in each workgroup would take longer",
    Reason.SHARED_MEMORY: "the rows do not fit the memory of a workgroup",
    Reason.NOT_LHS: "its reader does not contract its last axis alone as the lhs",
    Reason.OTHER_TYPE: "they are of other types, or contract other axes",
    Reason.SLOT_RANGE: "the slot may hold an index outside, as far as is declared",
    Reason.READS_BOTH: "what reads the state needs what overwrites it too, so that the "
    "state is written to a copy",
    Reason.OVERWRITTEN: "the one writes over what the other reads",
    Reason.PART_OF_WORD: "what is stored at once is no whole words",
    Reason.DEVICE: "the device cannot run it as one kernel",
    Reason.SHARED: "a value inside is read elsewhere too, or is an output",
    Reason.SIGN: "a product has the wrong sign, and no table a number for it to turn",
    Reason.PARTNER: "elements are not paired with those half a head on, nor with "
    "their neighbours",
    Reason.CROSSED: "elements of pairs are exchanged by more than moves and signs",
    Reason.TABLES: "cos or sin does not hold the pairs' numbers in order",
    Reason.OTHER_SOURCE: "the elements of a pair are not of one tensor",
    Reason.FLUSHED: "the device takes subnormals for zeros where it calculates",
    Reason.SIGNED_ZERO: "a zero would have another sign",
    Reason.NOT_FINITE: "infinities and NaN would give something else",
    Reason.ROUNDED: "numbers are rounded or cut on the way",
    Reason.SUBNORMAL: "a number is no normal one of its dtype",
    Reason.APPROXIMATE: "the device's function need not round as the exact one does",
    Reason.NOT_BOOL: "the condition is no bool",
    Reason.ACROSS_PARTS: "it reaches over more than one part",
    Reason.REST: "what is not turned is not the rest of the same tensor, in its place",
    Reason.SMALL_GAIN: "too little would be saved",
    Reason.LARGE_TABLE: "as a table it would take more memory than computing it again "
    "is worth",
    Reason.LIFETIME: "a large result would be kept for long before it is read",
    Reason.WHOLE_VECTORS: "its index vectors are not put together of their components",
    Reason.NOT_EACH_ROW: "it is not told that each row has one element, in order",
    Reason.NOT_FILLED: "what it writes to is not filled with one number",
}


class Declined(Exception):
    """Why something that looks like what a rewrite takes is none."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a rewrite does not take something in; the detail names values and limits."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One change that a pass may make: its name and the law it rests on."""

    name: str
    law: str
    numerics: Numerics = Numerics.EXACT


@dataclass(frozen=True, slots=True)
class Entry:
    """One time that a rewrite fired (no reason) or declined."""

    rewrite: Rewrite
    place: str
    reason: Reason | None = None
    detail: str = ""


@dataclass(slots=True)
class Log:
    """What the rewrites of one pass did, in order."""

    entries: list[Entry] = field(default_factory=list)

    def fire(self, rewrite: Rewrite, place: str) -> None:
        self.entries.append(Entry(rewrite, place))

    def decline(
        self, rewrite: Rewrite, place: str, reason: Reason, detail: str
    ) -> None:
        self.entries.append(Entry(rewrite, place, reason, detail))

    def fired(self, rewrite: Rewrite) -> list[Entry]:
        return [e for e in self.entries if e.rewrite is rewrite and e.reason is None]

    def declined(self, rewrite: Rewrite) -> list[Entry]:
        return [e for e in self.entries if e.rewrite is rewrite and e.reason]


@dataclass(frozen=True, slots=True)
class Pass:
    """Rewrites that one walk over the graph applies, by one edit."""

    name: str
    rewrites: tuple[Rewrite, ...]
    run: Callable[[Graph, DeviceInfo, Log], Graph]
    # Whether it runs over sub-graphs too.
    nested: bool = True


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What a pass found and left."""

    made_by: Pass
    log: Log
    equations_before: int
    equations_after: int
    # Which sub-graph of which equation it is about, if not the graph itself.
    where: str = ""


def named(graph: Graph, *operands: Operand) -> str:
    """Operands with their types, as graphs print both."""
    return ", ".join(
        print_operand(operand)
        if isinstance(operand, Scalar)
        else f"{print_operand(operand)} {graph.type(operand)}"
        for operand in operands
    )


def place_of(graph: Graph, index: int) -> str:
    """An equation as logs name it: results, op, operands and the user's line."""
    eqn = graph.eqns[index]
    outs = ", ".join(f"%{out}" for out in eqn.outs)
    given = ", ".join(map(print_operand, eqn.inputs))
    return f"{outs} = {eqn.op}({given}) at {graph.source(index)}"


def run_passes(
    passes: Sequence[Pass], graph: Graph, info: DeviceInfo
) -> tuple[Graph, tuple[PassRecord, ...]]:
    """The graph after all passes in turn, and the record of each.

    A pass runs over a graph, then over the sub-graphs of what it left if it is nested.
    """
    records: list[PassRecord] = []
    for entry in passes:
        graph = _run(entry, graph, info, records, "")
    return graph, tuple(records)


def _run(
    entry: Pass, graph: Graph, info: DeviceInfo, records: list[PassRecord], where: str
) -> Graph:
    log = Log()
    after = entry.run(graph, info, log)
    record = PassRecord(entry, log, len(graph.eqns), len(after.eqns), where)
    records.append(record)
    changed: dict[int, ControlOp] = {}
    for index, eqn in enumerate(after.eqns):
        if not isinstance(eqn.op, ControlOp) or not entry.nested:
            continue
        regions = [
            _run(entry, region, info, records, _named(after, index, number, where))
            for number, region in enumerate(eqn.op.regions)
        ]
        if any(
            new is not old for new, old in zip(regions, eqn.op.regions, strict=True)
        ):
            changed[index] = eqn.op.with_regions(regions)
    return _with_ops(after, changed) if changed else after


def _named(graph: Graph, index: int, number: int, where: str) -> str:
    op = graph.eqns[index].op
    return f"{where}{op.name} {number} at {graph.source(index)}: "


def _with_ops(graph: Graph, ops: Mapping[int, Op]) -> Graph:
    """The graph with other ops, of the same types, in some equations."""
    edit = graph.edit()
    for index, op in ops.items():
        eqn = graph.eqns[index]
        outs = edit.emit(op, eqn.inputs, index, graph.source(index))
        for old, new in zip(eqn.outs, outs, strict=True):
            edit.replace(old, new)
        edit.remove(index)
    return edit.commit()
