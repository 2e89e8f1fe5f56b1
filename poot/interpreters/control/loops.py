"""`scan`, `while_loop`, `fori_loop` and `map`, with lax's names and meanings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.errors import ArgumentError, ShapeError, TypeMismatchError
from poot.core.ops.control import Scan, While
from poot.core.types import TensorType, scalar_type
from poot.interpreters.array import Array
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.config import settings
from poot.interpreters.control.binding import (
    Body,
    bind,
    known,
    require_same_tree,
    require_same_types,
    staged,
)
from poot.interpreters.flat import name_of, require_callable, values_of
from poot.interpreters.primitives import concat, reshape, type_of
from poot.interpreters.promotion import cast_to
from poot.interpreters.pytree import by_sorted_keys, flatten, unflatten
from poot.interpreters.vmap import vmap


def _leaves(where: str, tree: Any) -> tuple[list[Any], Any]:
    leaves, treedef = flatten(tree)
    treedef = by_sorted_keys(treedef)
    return values_of(where, leaves, treedef), treedef


def _settled_carry(
    where: str, stage: Callable[[Sequence[Aval]], Body], init: list[Any], tree: Any
) -> tuple[Body, list[Any]]:
    """The body staged for carries of the types that it gives.

    A weakly typed initial value takes the dtype that comes out.
    """
    body = stage([x.aval for x in init])
    made = body.avals[: len(init)]
    if len(made) == len(init) and any(
        x.aval.weak and x.aval.type.dtype is not aval.type.dtype
        for x, aval in zip(init, made, strict=True)
    ):
        init = [
            cast_to(x, aval.type.dtype).with_weak(False) if x.aval.weak else x
            for x, aval in zip(init, made, strict=True)
        ]
        body = stage([x.aval for x in init])
    require_same_types(
        where, body.avals[: len(init)], [x.aval for x in init], tree, "carry"
    )
    return body, init


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each x along the leading axis of xs, in order.

    Returns the last carry and the ys, stacked along a new leading axis. Carry, x and y
    are trees of arrays; the carry keeps its shapes and dtypes. Without xs give
    `length`. With `reverse` it goes from the last x to the first. `f` is traced once.
    `unroll` is taken for JAX's sake and changes nothing.
    """
    require_callable("scan", f)
    where = f"scan of `{name_of(f)}`"
    carry, carry_tree = _leaves(f"{where}, init", init)
    elements, xs_tree = _leaves(f"{where}, xs", xs)
    count = _length(where, elements, length)
    if settings().disable_jit and count:
        return _scan_in_python(
            f, (carry, carry_tree), (elements, xs_tree), count, reverse
        )
    slices = [aval_of(_element(type_of(x))) for x in elements]
    tree = flatten((init, xs))[1]

    def stage(avals: Sequence[Aval]) -> Body:
        body = staged(_pair(where, f), tree, [*avals, *slices], where)
        made = body.tree.children()
        require_same_tree(f"{where}, carry returned", made[0], carry_tree)
        return body

    body, carry = _settled_carry(where, stage, carry, carry_tree)
    op = Scan(body.graph, count, len(body.captured), len(carry), bool(reverse))
    results = bind(op, [*body.captured, *carry, *elements])
    outs = [_weak_as(x, aval) for x, aval in zip(results, body.avals, strict=True)]
    last, ys = outs[: len(carry)], outs[len(carry) :]
    return unflatten(carry_tree, last), unflatten(body.tree.children()[1], ys)


def _weak_as(x: Any, aval: Aval) -> Any:
    return x.with_weak(aval.weak)


def _pair(where: str, f: Callable[..., Any]) -> Callable[..., Any]:
    def pair(carry: Any, x: Any) -> Any:
        returned = f(carry, x)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ArgumentError(
                f"{where}: the function returned a {type(returned).__name__}; takes "
                "one that returns a pair (carry, y)"
            )
        return returned

    pair.__name__ = name_of(f)
    return pair


def _element(type: TensorType) -> TensorType:
    return TensorType(type.shape[1:], type.dtype)


def _length(where: str, elements: Sequence[Any], length: int | None) -> int:
    sizes = set()
    for x in elements:
        if not type_of(x).shape:
            raise ShapeError(
                f"{where}: an x is {type_of(x)}; takes arrays with a leading axis"
            )
        sizes.add(type_of(x).shape[0])
    if length is not None:
        sizes.add(int(length))
    if len(sizes) > 1:
        raise ShapeError(
            f"{where}: leading axes of xs and length are {sorted(sizes)}; takes one "
            "size"
        )
    if not sizes:
        raise ArgumentError(f"{where}: there are no xs; give length")
    (size,) = sizes
    return size


def _scan_in_python(
    f: Callable[..., Any],
    init: tuple[list[Any], Any],
    xs: tuple[list[Any], Any],
    count: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """Op by op, for `disable_jit`."""
    carry = unflatten(init[1], init[0])
    made: list[Any] = [None] * count
    for i in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, unflatten(xs[1], [x[i] for x in xs[0]]))
        made[i], y_tree = flatten(y)
    stacked = [_stack(ys) for ys in zip(*made, strict=True)]
    return carry, unflatten(by_sorted_keys(y_tree), stacked)


def _stack(ys: Sequence[Any]) -> Any:
    values = values_of("scan", list(ys), flatten(tuple(ys))[1])
    return concat([reshape(y, (1, *type_of(y).shape)) for y in values], 0)


# --- while ------------------------------------------------------------------


def while_loop(
    cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any
) -> Any:
    """`val = body_fun(val)` as long as `cond_fun(val)` holds; the last val.

    val is a tree of arrays that keeps its shapes and dtypes; `cond_fun` gives a bool
    scalar. Both are traced once. It cannot be differentiated in reverse mode.
    """
    require_callable("while_loop", cond_fun)
    require_callable("while_loop", body_fun)
    where = f"while_loop of `{name_of(body_fun)}`"
    init, tree = _leaves(f"{where}, init_val", init_val)
    if settings().disable_jit:
        val, goes_on = _while_in_python(cond_fun, body_fun, unflatten(tree, init))
        if not goes_on:
            return val
        init, _ = _leaves(where, val)
    whole = flatten((init_val,))[1]

    def stage(avals: Sequence[Aval]) -> Body:
        body = staged(body_fun, whole, avals, where)
        require_same_tree(f"{where}, val returned", body.tree, tree)
        return body

    body, init = _settled_carry(where, stage, init, tree)
    condition = staged(cond_fun, whole, [x.aval for x in init], where)
    given = [aval.type for aval in condition.avals]
    if given != [scalar_type(dtypes.bool_)]:
        raise TypeMismatchError(
            f"{where}: cond_fun gives ({', '.join(str(t) for t in given)}), takes a "
            "bool scalar"
        )
    op = While(condition.graph, body.graph, len(condition.captured), len(body.captured))
    results = bind(op, [*condition.captured, *body.captured, *init])
    outs = [_weak_as(x, aval) for x, aval in zip(results, body.avals, strict=True)]
    return unflatten(tree, outs)


def _while_in_python(
    cond_fun: Callable[..., Any], body_fun: Callable[..., Any], val: Any
) -> tuple[Any, bool]:
    """The val op by op as far as the condition is known, and whether that is not all.

    In a vmap it may come to hang on the example.
    """
    while (goes_on := known(bool, cond_fun(val))) is not None:
        if not goes_on:
            return val, False
        val = body_fun(val)
    return val, True


def _static(bound: Any) -> int | None:
    """A bound of a loop as a Python number, if its value is known."""
    if (type(bound) is Array and bound.shape == ()) or isinstance(bound, np.ndarray):
        bound = np.asarray(bound)[()]
    if isinstance(bound, int | np.integer):
        return int(bound)
    return None


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`val = body_fun(i, val)` for i from `lower` to `upper` - 1; the last val.

    With Python numbers as bounds it is a loop of known length, which can be
    differentiated in reverse mode; with traced bounds a while_loop. `unroll` is taken
    for JAX's sake and changes nothing.
    """
    require_callable("fori_loop", body_fun)
    first, last = _static(lower), _static(upper)
    if first is not None and last is not None:

        def step(carry: Any, _: Any) -> Any:
            i, val = carry
            return (i + 1, body_fun(i, val)), None

        step.__name__ = name_of(body_fun)
        # The number is weakly typed, as in JAX: it does not widen the carry.
        (_, val), _ = scan(step, (first, init_val), None, max(last - first, 0))
        return val

    def goes_on(carry: Any) -> Any:
        return carry[0] < carry[1]

    def advance(carry: Any) -> Any:
        i, end, val = carry
        return i + 1, end, body_fun(i, val)

    advance.__name__ = name_of(body_fun)
    lower, upper = _bounds(lower, upper)
    return while_loop(goes_on, advance, (lower, upper, init_val))[2]


def _bounds(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Both bounds in one integer dtype."""
    values = values_of("fori_loop", [lower, upper], flatten((lower, upper))[1])
    for value in values:
        type = type_of(value)
        if type.shape or not type.dtype.is_integer:
            raise TypeMismatchError(
                f"fori_loop: a bound is {type}; takes integer scalars"
            )
    strong = [v for v in values if not v.aval.weak] or values
    dtype = type_of(strong[0]).dtype
    return tuple(  # type: ignore[return-value]
        v if type_of(v).dtype is dtype else cast_to(v, dtype).with_weak(False)
        for v in values
    )


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of each x along the leading axis, one after the other; results stacked.

    With `batch_size` so many at a time, by vmap; the last ones that do not fill a batch
    go by themselves.
    """
    require_callable("map", f)

    def step(carry: Any, x: Any) -> Any:
        return carry, f(x)

    step.__name__ = name_of(f)
    if batch_size is None:
        return scan(step, (), xs)[1]
    return _map_in_batches(f, xs, batch_size)


def _map_in_batches(f: Callable[[Any], Any], xs: Any, batch_size: int) -> Any:
    elements, tree = _leaves("map, xs", xs)
    count = _length("map", elements, None)
    if batch_size < 1:
        raise ArgumentError(f"map: batch_size is {batch_size}, takes 1 or more")
    whole = count // batch_size * batch_size
    over = vmap(f)
    head = unflatten(
        tree,
        [
            reshape(x[:whole], (whole // batch_size, batch_size, *x.shape[1:]))
            for x in elements
        ],
    )
    rest = unflatten(tree, [x[whole:] for x in elements])
    made, made_tree = flatten(scan(lambda c, x: (c, over(x)), (), head)[1])
    made = [reshape(y, (whole, *y.shape[2:])) for y in made]
    if whole == count:
        return unflatten(made_tree, made)
    last = flatten(over(rest))[0]
    joined = [concat([a, b], 0) for a, b in zip(made, last, strict=True)]
    return unflatten(made_tree, joined)
