"""Attention: a softmax between two contractions becomes one equation."""

from __future__ import annotations

from poot.core.edit import GraphEdit
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.attention import Attention
from poot.core.ops.elementwise import Unary, UnaryOp
from poot.core.ops.shape import Reshape, Transpose
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.attention_axes import Atom
from poot.lowering.passes.attention_facts import Facts, reaches_contraction
from poot.lowering.passes.attention_logs import Logs
from poot.lowering.passes.attention_match import Match
from poot.lowering.passes.attention_quotient import Quotient
from poot.lowering.passes.attention_roles import FEATURE, bring
from poot.lowering.passes.attention_score import IndexValues, Slicer, score_graph
from poot.lowering.passes.attention_softmax import Softmax
from poot.lowering.passes.driver import (
    Declined,
    Log,
    Numerics,
    Pass,
    Reason,
    Rewrite,
    place_of,
)

FIND_ATTENTION = Rewrite(
    "find_attention",
    "softmax(score(q kᵀ)) v may be summed by tiles of keys: what is largest so far is "
    "taken off, and older sums shrink; scores and shares stay f32; exp(s - log t) is "
    "exp(s) / t without the roundings of log; f16, bf16, f32",
    Numerics.REASSOCIATING,
)

_EXP, _EXP2 = Unary(UnaryOp.EXP), Unary(UnaryOp.EXP2)


def _find_attention(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    powers = [index for index, eqn in enumerate(graph.eqns) if eqn.op in (_EXP, _EXP2)]
    if not powers:
        return graph
    facts = Facts(graph)
    indices = IndexValues(facts)
    edit = graph.edit()
    fired = False
    for index in powers:
        try:
            softmax = _find_softmax(facts, index)
            if softmax is None:
                continue
            match = _match(facts, indices, softmax)
        except Declined as why:
            log.decline(FIND_ATTENTION, place_of(graph, index), why.reason, why.detail)
            continue
        last = _emit(edit, match)
        log.fire(FIND_ATTENTION, place_of(graph, last))
        fired = True
    return edit.commit() if fired else graph


def _find_softmax(facts: Facts, index: int) -> Softmax | None:
    """The softmax around the powers of an equation, if they lead to a contraction.

    Declined if they do, but it is none or is not only read there.
    """
    eqn = facts.graph.eqns[index]
    for spelling in (Quotient(facts, eqn), Logs(facts, eqn)):
        if not spelling.is_candidate:
            continue
        if not reaches_contraction(facts, eqn.out):
            return None
        if eqn.op == _EXP2:
            raise Declined(
                Reason.OTHER_BASE, f"{facts.made(eqn.out)}; takes exponentials"
            )
        return spelling.softmax()
    return None


def _match(facts: Facts, indices: IndexValues, softmax: Softmax) -> Match:
    """The match with the first contraction that the scores can be made of."""
    slicer = Slicer(facts, indices, softmax.scores)
    first: Declined | None = None
    for products in slicer.products():
        try:
            return Match(facts, softmax, slicer.cut(products, softmax.scored))
        except Declined as why:
            first = first or why
    assert first is not None
    raise first


def _emit(edit: GraphEdit, match: Match) -> int:
    """Put one equation in the place of all; the number of the last of them."""
    facts, graph, softmax, roles = (
        match.facts,
        match.graph,
        match.softmax,
        match.roles,
    )
    at, flat = softmax.last, [atom for group in roles.result for atom in group]
    turned = _only_transpose(facts, graph.eqns[at].out)
    shape = graph.type(graph.eqns[at].out).shape
    axes = roles.result
    if turned is not None:
        op = graph.eqns[turned].op
        assert isinstance(op, Transpose)
        axes = tuple(axes[axis] for axis in op.perm)
        at, flat = turned, [atom for group in axes for atom in group]
        shape = graph.type(graph.eqns[at].out).shape
    size = match.atoms.size
    batch = [(atom, size(atom)) for atom in roles.batch]
    rows = [(atom, size(atom)) for atom in roles.rows]
    key = (roles.key, size(roles.key))
    features, values = (FEATURE, roles.features), (FEATURE, roles.values)
    operands = [
        bring(edit, at, roles.q, [*batch, *rows, features]),
        bring(edit, at, roles.k, [*batch, key, features]),
        bring(edit, at, roles.v, [*batch, key, values]),
    ]
    wanted: tuple[Atom, ...] = (*roles.batch, *roles.rows, FEATURE)
    score = score_graph(
        graph,
        match.cut,
        match.atoms,
        match.axes,
        (*roles.batch, *roles.rows, roles.key),
        softmax.scores,
    )
    op = Attention(
        score,
        len(roles.batch),
        tuple(wanted.index(atom) for atom in flat),
        graph.type(match.mean.inputs[softmax.side]).dtype,
        graph.type(match.mean.out).dtype,
        softmax.late is not None,
    )
    source = graph.source(at)
    (made,) = edit.emit(op, (*operands, *match.cut.extras), at, source)
    if edit.type(made).shape != shape:
        (made,) = edit.emit(Reshape(shape), (made,), at, source)
    edit.replace(graph.eqns[at].out, made)
    edit.remove(at)
    return at


def _only_transpose(facts: Facts, value: ValueId) -> int | None:
    """The transpose that is all that reads a value."""
    readers = facts.readers(value)
    if value in facts.kept or len(readers) != 1:
        return None
    is_transpose = isinstance(facts.graph.eqns[readers[0]].op, Transpose)
    return readers[0] if is_transpose else None


find_attention = Pass("attention", (FIND_ATTENTION,), _find_attention)
