"""`debug.print`, `debug.callback` and `pure_callback`: the host's functions."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.dtypes import as_dtype, by_name
from poot.core.errors import ArgumentError, TypeMismatchError
from poot.core.interpreter import current
from poot.core.op import CustomRule
from poot.core.ops.host import HostCall, HostOp, Record
from poot.core.types import TensorType
from poot.interpreters.flat import name_of, require_callable
from poot.interpreters.promotion import as_value, canonical, is_operand
from poot.interpreters.pytree import TreeDef, by_sorted_keys, flatten, unflatten
from poot.interpreters.signature import ShapeDtypeStruct

_CACHED = 4096
_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")


class _Moving:
    """Stands for a leaf whose value comes with each call."""


_MOVING = _Moving()


def _taken(where: str, args: Any, kwargs: Any) -> tuple[list[Any], list[Any], TreeDef]:
    """The arrays and numbers of a call, its other leaves by place, and its tree."""
    leaves, tree = flatten((args, kwargs))
    moving = [as_value(leaf, where) for leaf in leaves if is_operand(leaf)]
    fixed = [_MOVING if is_operand(leaf) else leaf for leaf in leaves]
    return moving, fixed, by_sorted_keys(tree)


def _called(
    function: Callable[..., Any], fixed: Sequence[Any], tree: TreeDef, arrays: Any
) -> Any:
    given = iter(arrays)
    leaves = [next(given) if leaf is _MOVING else leaf for leaf in fixed]
    args, kwargs = unflatten(tree, leaves)
    return function(*args, **kwargs)


def _examples(op: HostOp, arrays: Sequence[Any]) -> list[list[Any]]:
    """The arrays of each example, in order; of the only one where there is no batch."""
    return [[np.asarray(x[index]) for x in arrays] for index in np.ndindex(*op.batch)]


# --- records ----------------------------------------------------------------


def _new_site(
    shown: str, function: Callable[..., Any], fixed: Sequence[Any], tree: TreeDef
) -> CustomRule:
    def deliver(op: HostOp, arrays: Sequence[Any]) -> None:
        for example in _examples(op, arrays):
            _called(function, fixed, tree, example)

    return CustomRule(shown, (deliver,))


_cached_site = functools.lru_cache(_CACHED)(_new_site)


def _record(
    shown: str,
    function: Callable[..., Any],
    taken: tuple[list[Any], list[Any], TreeDef],
    ordered: bool,
) -> None:
    moving, fixed, tree = taken
    try:
        # One site for equal statements, so that equal graphs are compiled once.
        site = _cached_site(shown, function, tuple(fixed), tree)
    except TypeError:
        # Something that it was given has no hash.
        site = _new_site(shown, function, fixed, tree)
    word = Record(site, (), ordered).bind(*moving)
    current().witness(word, shown, ())


def debug_callback(
    callback: Callable[..., Any],
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> None:
    """Call `callback` on the host with the arguments, arrays as NumPy's, when computed.

    In a jitted function the values go to a ring in device memory; the call waits for
    the device and calls back, in the order of the statements, before it returns. A
    ring that is too small for a loop says how many records were lost. Where a function
    is differentiated it sees the values, once; under vmap it is called an example, in
    both branches of a `cond` whose predicate is batched, as in JAX.
    `ordered` refuses vmap; `partitioned` is taken for JAX's sake.
    """
    require_callable("debug.callback", callback)
    taken = _taken("debug.callback", args, kwargs)
    _record(f"debug.callback of {name_of(callback)}", callback, taken, ordered)


@functools.lru_cache(_CACHED)
def _printing(fmt: str) -> Callable[..., None]:
    def show(*args: Any, **kwargs: Any) -> None:
        print(fmt.format(*args, **kwargs))

    return show


def debug_print(
    fmt: str,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> None:
    """Print `fmt.format(*args, **kwargs)` when the values are computed.

    As `debug.callback`, which says when. ArgumentError if `fmt` does not go with the
    arguments.

        poot.debug.print("loss {loss:.3f} after {}", step, loss=loss)
    """
    if not isinstance(fmt, str):
        raise ArgumentError(
            f"debug.print: the format is a {type(fmt).__name__}, takes a string"
        )
    if not skip_format_check:
        _check_format(fmt, args, kwargs)
    taken = _taken("debug.print", args, kwargs)
    _record(f"debug.print of {fmt!r}", _printing(fmt), taken, ordered)


class _Fields(string.Formatter):
    """Follows the fields of a format, and notes which arguments it shows."""

    def __init__(self) -> None:
        self.shown: set[int | str] = set()

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        # Only the argument itself: its attributes are for the host's arrays to have.
        first = field_name.replace("[", ".").partition(".")[0]
        value, key = super().get_field(first, args, kwargs)
        self.shown.add(key)
        return value, key

    def convert_field(self, value: Any, conversion: Any) -> str:
        return ""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""


def _check_format(fmt: str, args: Any, kwargs: Any) -> None:
    fields = _Fields()
    try:
        fields.vformat(fmt, args, kwargs)
    except (IndexError, KeyError, ValueError) as error:
        raise ArgumentError(
            f"debug.print: the format {fmt!r} does not go with the arguments "
            f"({type(error).__name__}: {error})"
        ) from None
    unread = {*range(len(args)), *kwargs} - fields.shown
    if unread:
        names = ", ".join(sorted(map(str, unread)))
        raise ArgumentError(
            f"debug.print: the format {fmt!r} does not show argument {names}; give "
            "fields such as {} (an f-string has none left)"
        )


def effects_barrier() -> None:
    """Return when all calls so far have printed: each has before it returned."""


# --- pure callbacks ---------------------------------------------------------


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """What a pure function of the host's gives for the arguments, as NumPy arrays.

    `result_shape_dtypes` is a tree of ShapeDtypeStructs (or arrays) as the result is.
    No device calls the host, so a jitted function is cut there into several programs,
    and waits for the first; loops around it run iteration by iteration. Its report says
    so. `vmap_method`: "sequential" calls
    once an example; "expand_dims" and "broadcast_all" once with leading axes, of size 1
    or repeated for what has no batch. It has no derivative but by `custom_jvp` or
    `custom_vjp`. TypeMismatchError if the function returns something else.
    """
    require_callable("pure_callback", callback)
    if sharding is not None:
        raise ArgumentError("pure_callback: there is one device; leave sharding out")
    if vmap_method is not None and vmap_method not in _METHODS:
        raise ArgumentError(
            f"pure_callback: vmap_method is {vmap_method!r}, takes None or "
            f"{', '.join(map(repr, _METHODS))}"
        )
    wanted, result_tree = flatten(result_shape_dtypes)
    structs = [_struct(leaf) for leaf in wanted]
    moving, fixed, tree = _taken("pure_callback", args, kwargs)

    def deliver(op: HostCall, arrays: Sequence[Any]) -> list[Any]:
        made = [np.empty(type.shape, type.dtype.numpy) for type in op.infer()]
        for index, example in zip(
            np.ndindex(*op.batch), _examples(op, arrays), strict=True
        ):
            returned = _called(callback, fixed, tree, example)
            for array, result in zip(
                made, _results(op, returned, by_sorted_keys(result_tree)), strict=True
            ):
                array[index] = result
        return made

    op = HostCall(
        CustomRule(name_of(callback), (deliver,)),
        (),
        tuple(struct.shape for struct in structs),
        tuple(as_dtype(struct.dtype).name for struct in structs),
        "sequential" if vmap_method == "sequential_unrolled" else vmap_method or "",
    )
    return unflatten(by_sorted_keys(result_tree), op.bind(*moving))


def _struct(leaf: Any) -> ShapeDtypeStruct:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise ArgumentError(
            f"pure_callback: result_shape_dtypes holds a {type(leaf).__name__}; takes "
            "ShapeDtypeStructs and arrays, and containers of them"
        )
    return ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _results(op: HostCall, returned: Any, tree: TreeDef) -> list[Any]:
    """The leaves that a callback returned; TypeMismatchError for other types."""
    where = f"pure_callback of `{op.site.name}`"
    leaves, given = flatten(returned)
    if by_sorted_keys(given) != tree:
        raise TypeMismatchError(
            f"{where}: it returned the tree {given}, result_shape_dtypes is {tree}"
        )
    arrays = []
    for leaf, shape, name in zip(leaves, op.shapes, op.dtype_names, strict=True):
        array, wanted = np.asarray(leaf), TensorType(shape, by_name(name))
        # As for all that comes from NumPy, 64 bits are 32 unless they are switched on.
        found = TensorType(array.shape, canonical(as_dtype(array.dtype)))
        if found != wanted:
            raise TypeMismatchError(
                f"{where}: it returned {found}, result_shape_dtypes says {wanted}; "
                "cast or reshape it"
            )
        arrays.append(array.astype(found.dtype.numpy))
    return arrays
