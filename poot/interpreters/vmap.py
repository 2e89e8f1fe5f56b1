"""`vmap`: a function of one example as a function of a whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.core.interpreter import current
from poot.interpreters.batch.interpreter import (
    BatchInterpreter,
    BatchTracer,
    held_at,
)
from poot.interpreters.batch.table import Axis
from poot.interpreters.flat import FlatFunction, name_of, require_callable, values_of
from poot.interpreters.primitives import type_of
from poot.interpreters.pytree import (
    TreeDef,
    by_sorted_keys,
    flatten,
    leaf_paths,
    prefix_leaves,
    unflatten,
)


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """A function that runs `fun` on all examples of a batch at once.

    `in_axes` says along which axis of each argument the examples stand: an int (from
    the end if negative), None for an argument that all share, or a tuple with an entry
    an argument, each a tree prefix of it. Arguments given by name are batched along
    axis 0. `out_axes` says the same of the results. `axis_name` names the batch for
    psum and its kin.
    """
    require_callable("vmap", fun)

    @functools.wraps(fun)
    def batched(*args: Any, **kwargs: Any) -> Any:
        where = f"vmap of `{name_of(fun)}`"
        leaves, tree = flatten((args, kwargs))
        values = values_of(where, leaves, tree)
        axes = _in_axes(where, in_axes, args, kwargs, tree)
        paths = [accessor[1:].codify("args") for accessor in leaf_paths(tree)]
        axes = _from_front(where, values, axes, paths)
        size = _batch_size(where, values, axes, paths, axis_size)

        def call(given: Any, named: Any) -> Any:
            return fun(*given, **named)

        call.__name__ = name_of(fun)
        flat = FlatFunction(call, tree, "vmap")
        inner = BatchInterpreter(current(), name_of(fun), size, axis_name)
        inputs = [BatchTracer(inner, x, a) for x, a in zip(values, axes, strict=True)]
        with inner.running():
            outs = [inner.lift(out) for out in flat(*inputs)]
        return _placed_results(where, outs, flat.result_tree, out_axes)

    return batched


def _in_axes(
    where: str, in_axes: Any, args: Any, kwargs: Any, tree: TreeDef
) -> list[Axis]:
    if isinstance(in_axes, list):
        # As JAX: a list stands for the tuple of it.
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, int | tuple)):
        raise ArgumentError(
            f"{where}: in_axes is a {type(in_axes).__name__}; takes an int, None, or a "
            "tuple with an entry an argument"
        )
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ArgumentError(
            f"{where}: in_axes has {len(in_axes)} entries, {len(args)} arguments are "
            "given by position; takes one each"
        )
    return [
        *prefix_leaves(in_axes, args, f"{where}: in_axes"),
        *[0] * (tree.num_leaves - len(flatten(args)[0])),
    ]


def _from_front(
    where: str, values: Sequence[Any], axes: Sequence[Any], paths: Sequence[str]
) -> list[Axis]:
    """Axes counted from the front, each one that its value has."""
    found: list[Axis] = []
    for value, axis, path in zip(values, axes, paths, strict=True):
        if axis is None:
            found.append(None)
            continue
        ndim = type_of(value).ndim
        _require_axis(where, axis)
        if not -ndim <= axis < ndim:
            raise ShapeError(
                f"{where}: {path} is {type_of(value)}, which has no axis {axis}; give "
                "None for what all examples share"
            )
        found.append(axis % ndim)
    return found


def _require_axis(where: str, axis: Any) -> None:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise ArgumentError(f"{where}: {axis!r} is no axis; takes ints and None")


def _batch_size(
    where: str,
    values: Sequence[Any],
    axes: Sequence[Axis],
    paths: Sequence[str],
    axis_size: int | None,
) -> int:
    sizes = {
        path: type_of(value).shape[axis]
        for value, axis, path in zip(values, axes, paths, strict=True)
        if axis is not None
    }
    if axis_size is not None:
        if not isinstance(axis_size, int) or axis_size < 0:
            raise ArgumentError(f"{where}: axis_size is {axis_size!r}; takes 0 or more")
        sizes["axis_size"] = axis_size
    if not sizes:
        raise ArgumentError(
            f"{where}: no argument has a batch axis; give in_axes an int for one of "
            "them, or axis_size"
        )
    if len(set(sizes.values())) > 1:
        given = ", ".join(f"{path}: {size}" for path, size in sizes.items())
        raise ShapeError(
            f"{where}: the batch axes have different sizes ({given}); takes equal ones"
        )
    return next(iter(sizes.values()))


def _placed_results(
    where: str, outs: Sequence[BatchTracer], tree: TreeDef, out_axes: Any
) -> Any:
    whole = unflatten(tree, outs)
    wanted = prefix_leaves(out_axes, whole, f"{where}: out_axes")
    found = []
    for out, axis in zip(outs, wanted, strict=True):
        if axis is None:
            if out.axis is not None:
                raise ArgumentError(
                    f"{where}: out_axes is None for a result ({out.aval.type}) that "
                    "differs between examples; give an int"
                )
            found.append(out.held.with_weak(out.aval.weak))
            continue
        _require_axis(where, axis)
        ndim = out.aval.type.ndim + 1
        if not -ndim <= axis < ndim:
            raise ShapeError(
                f"{where}: out_axes {axis} for a result of type {out.aval.type}; takes "
                f"{-ndim}..{ndim - 1}"
            )
        found.append(held_at(out, axis % ndim).with_weak(out.aval.weak))
    return unflatten(by_sorted_keys(tree), found)
