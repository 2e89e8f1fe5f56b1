"""Einstein's summation, by pairs of operands in the order of a contraction path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, ShapeError
from poot.core.ops.reduce import ReduceOp
from poot.interpreters import moving, reductions
from poot.interpreters.contraction import as_precision, dot_general
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, promote, result_of
from poot.interpreters.rounding import refuse_out
from poot.interpreters.shaping import as_element_type, squeeze, transpose
from poot.numpy._creation import asarray

# An axis by its letter, its number (of operands with lists), or, under an ellipsis, by
# its place from the right: -1, -2, …
Label = str | int
Labels = tuple[Label, ...]
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Up to so many operands all orders of contraction are tried unless the caller says.
_FEW_OPERANDS = 4
Path = list[tuple[int, ...]]


@dataclass(slots=True)
class _Term:
    """An operand and the labels of its axes."""

    value: Value
    labels: Labels


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """Sums of products over the axes whose labels are not in the result.

    `subscripts` is text such as "bij,bjk->bik", in which "..." stands for axes that
    broadcast; or operands come each with a list of numbers, and last the result's list.
    `optimize` is "auto", "optimal", "greedy", a bool or a path: pairs of positions in
    the list of operands, from which the two are taken and their product added at the
    end. Operands are promoted; all but the path as in NumPy.
    """
    refuse_out("einsum", out)
    given, result = _parsed(subscripts, operands)
    promoted = promote("einsum", *(term.value for term in given))
    terms = [
        _diagonals(_Term(value, term.labels))
        for value, term in zip(promoted.operands, given, strict=True)
    ]
    terms = _without_repeated(terms)
    options = {
        "precision": as_precision(precision),
        "preferred_element_type": preferred_element_type,
    }
    for positions in _path(terms, result, optimize):
        taken = [terms[place] for place in positions]
        terms = [t for place, t in enumerate(terms) if place not in positions]
        kept = {label for term in terms for label in term.labels} | set(result)
        product = taken[0]
        for number, other in enumerate(taken[1:], 2):
            later = {label for term in taken[number:] for label in term.labels}
            product = _product(product, other, kept | later, options)
        terms.append(_summed(product, kept))
    (term,) = terms
    value = transpose(term.value, [term.labels.index(label) for label in result])
    if preferred_element_type is not None:
        return cast_to(value, as_element_type(preferred_element_type)).with_weak(False)
    return result_of(promoted, value)


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: Any = "auto"
) -> tuple[Path, str]:
    """The path that `einsum` takes, and NumPy's description of it."""
    given, result = _parsed(subscripts, operands)
    terms = _without_repeated([_diagonals(term) for term in given])
    path = _path(terms, result, optimize)
    return path, _planned(terms, result, ["einsum_path", *path])[1]


# --- what the arguments say -------------------------------------------------


def _parsed(subscripts: Any, operands: Sequence[Any]) -> tuple[list[_Term], Labels]:
    """The operands with their labels, ellipses spelt out, and the result's labels."""
    inputs: list[list[Any]]
    if isinstance(subscripts, str):
        text, arrow, last = subscripts.replace(" ", "").partition("->")
        inputs = [_symbols(term) for term in text.split(",")]
        output = _symbols(last) if arrow else None
        values = [asarray(operand) for operand in operands]
    else:
        everything = [subscripts, *operands]
        output = list(everything.pop()) if len(everything) % 2 else None
        values = [asarray(operand) for operand in everything[::2]]
        inputs = [list(labels) for labels in everything[1::2]]
    if len(inputs) != len(values) or not values:
        raise ArgumentError(
            f"einsum: subscripts of {len(inputs)} operands, given {len(values)}"
        )
    labels = [_spelt(s, x.ndim) for s, x in zip(inputs, values, strict=True)]
    _check_sizes(labels, values)
    terms = [_Term(x, own) for x, own in zip(values, labels, strict=True)]
    return terms, _result(output, labels)


def _symbols(text: str) -> list[Any]:
    """The letters of one operand, with Ellipsis for "..."."""
    before, dots, after = text.partition("...")
    symbols = [*before, *([Ellipsis] if dots else []), *after]
    wrong = [s for s in symbols if s is not Ellipsis and s not in _LETTERS]
    if wrong:
        raise ArgumentError(
            f"einsum: {wrong[0]!r} in {text!r} is no label; takes letters and one '...'"
        )
    return symbols


def _spelt(symbols: Sequence[Any], ndim: int) -> Labels:
    named = len(symbols) - (Ellipsis in symbols)
    hidden = ndim - named
    if hidden < 0 or (hidden and Ellipsis not in symbols):
        raise ShapeError(
            f"einsum: {named} labels for an operand of {ndim} axes; takes one an axis, "
            "or '...' for the others"
        )
    return _with_ellipsis(symbols, hidden)


def _with_ellipsis(symbols: Sequence[Any], hidden: int) -> Labels:
    found: list[Label] = []
    for symbol in symbols:
        found += range(-hidden, 0) if symbol is Ellipsis else [symbol]
    return tuple(found)


def _result(output: list[Any] | None, inputs: Sequence[Labels]) -> Labels:
    counts = Counter(label for labels in inputs for label in labels)
    under = sorted(label for label in counts if isinstance(label, int) and label < 0)
    if output is None:
        once = [label for label, n in counts.items() if n == 1 and label not in under]
        return (*under, *sorted(once))
    result = _with_ellipsis(output, len(under))
    unknown = [label for label in result if label not in counts]
    if unknown or len(set(result)) != len(result):
        raise ArgumentError(
            f"einsum: the result's labels {output} must be labels of operands, each "
            "once"
        )
    if under and not set(under) <= set(result):
        raise ArgumentError(
            "einsum: operands have '...', so the result needs it too (or no '->')"
        )
    return result


def _check_sizes(inputs: Sequence[Labels], values: Sequence[Value]) -> None:
    sizes: dict[Label, int] = {}
    for labels, value in zip(inputs, values, strict=True):
        for label, size in zip(labels, value.shape, strict=True):
            known = sizes.setdefault(label, size)
            if 1 not in (known, size) and known != size:
                raise ShapeError(
                    f"einsum: axes labelled {label!r} have sizes {known} and {size}; "
                    "they must be equal, or 1"
                )
            sizes[label] = size if known == 1 else known


# --- one operand ------------------------------------------------------------


def _diagonals(term: _Term) -> _Term:
    """The diagonal of axes that have one label."""
    value, labels = term.value, list(term.labels)
    for label, count in Counter(labels).items():
        for _ in range(count - 1):
            first = labels.index(label)
            second = labels.index(label, first + 1)
            single = [a for a in (first, second) if value.shape[a] == 1]
            if single and value.shape[first] != value.shape[second]:
                value = squeeze(value, single[0])
                del labels[single[0]]
                continue
            value = moving.diagonal(value, 0, first, second)
            del labels[second], labels[first]
            labels.append(label)
    return _Term(value, tuple(labels))


def _without_repeated(terms: Sequence[_Term]) -> list[_Term]:
    """Without axes of size 1 that stand beside a larger axis of the label."""
    large = {
        label
        for term in terms
        for label, size in zip(term.labels, term.value.shape, strict=True)
        if size != 1
    }
    found = []
    for term in terms:
        sizes = zip(term.labels, term.value.shape, strict=True)
        repeated = [i for i, (x, n) in enumerate(sizes) if n == 1 and x in large]
        labels = tuple(x for i, x in enumerate(term.labels) if i not in repeated)
        found.append(_Term(squeeze(term.value, tuple(repeated)), labels))
    return found


def _summed(term: _Term, kept: set[Label]) -> _Term:
    """The sum over all axes whose labels are not kept."""
    axes = tuple(i for i, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    value = term.value
    op = ReduceOp.ANY if value.type.dtype.is_bool else ReduceOp.SUM
    labels = tuple(label for label in term.labels if label in kept)
    return _Term(reductions.reduce(op, value, axes, False), labels)


# --- two operands -----------------------------------------------------------


def _product(x: _Term, y: _Term, kept: set[Label], options: dict[str, Any]) -> _Term:
    """The product of two operands, summed over what nobody needs any more."""
    x = _summed(x, kept | set(y.labels))
    y = _summed(y, kept | set(x.labels))
    both = [label for label in x.labels if label in y.labels]
    batch = [label for label in both if label in kept]
    inner = [label for label in both if label not in kept]

    def places(labels: Sequence[Label]) -> tuple[list[int], list[int]]:
        return [x.labels.index(i) for i in labels], [y.labels.index(i) for i in labels]

    value = dot_general(x.value, y.value, places(inner), places(batch), **options)
    free = [label for term in (x, y) for label in term.labels if label not in both]
    return _Term(value, (*batch, *free))


# --- paths ------------------------------------------------------------------


def _path(terms: Sequence[_Term], result: Labels, optimize: Any) -> Path:
    count = len(terms)
    if isinstance(optimize, list | tuple):
        path = [tuple(step) for step in optimize if step != "einsum_path"]
        _check_path(path, count)
        return path
    if optimize == "auto" or optimize is True:
        optimize = "optimal" if count <= _FEW_OPERANDS else "greedy"
    if optimize not in ("optimal", "greedy", False):
        raise ArgumentError(
            f"einsum: optimize is {optimize!r}, takes 'auto', 'optimal', 'greedy', a "
            "bool or a path"
        )
    if count <= 2:
        return [tuple(range(count))]
    if optimize is False:
        return [(0, 1), *((0, place) for place in range(count - 2, 0, -1))]
    _, *path = _planned(terms, result, optimize)[0]
    return [tuple(step) for step in path]


def _check_path(path: Path, count: int) -> None:
    left = count
    for step in path:
        if not step or len(set(step)) != len(step) or not set(step) <= set(range(left)):
            raise ArgumentError(
                f"einsum: step {step} of the path takes from {left} operands"
            )
        left -= len(step) - 1
    if left != 1:
        raise ArgumentError(
            f"einsum: the path {path} leaves {left} of {count} operands, not one"
        )


def _planned(
    terms: Sequence[_Term], result: Labels, optimize: Any
) -> tuple[list[Any], str]:
    """NumPy's path, found from the shapes alone, and its description."""
    labels = dict.fromkeys(label for term in terms for label in term.labels)
    if len(labels) > len(_LETTERS):
        raise ArgumentError(
            f"einsum: {len(labels)} labels, takes {len(_LETTERS)} at most"
        )
    letters = dict(zip(labels, _LETTERS, strict=False))
    texts = ["".join(letters[label] for label in term.labels) for term in terms]
    text = ",".join(texts) + "->" + "".join(letters[label] for label in result)
    shapes = [np.broadcast_to(np.int8(0), term.value.shape) for term in terms]
    path, description = np.einsum_path(text, *shapes, optimize=optimize)
    return path, description
