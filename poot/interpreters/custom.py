"""`custom_jvp`, `custom_vjp`, `stop_gradient`, `checkpoint`, `closure_convert`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.op import CustomRule, Op
from poot.core.ops.wrappers import (
    CheckpointName,
    CustomJvp,
    CustomVjp,
    CustomVmap,
    Remat,
)
from poot.interpreters.array import Array
from poot.interpreters.eager import EAGER
from poot.interpreters.flat import (
    FlatFunction,
    float0,
    name_of,
    require_callable,
    values_of,
)
from poot.interpreters.graphs import exposed, identity
from poot.interpreters.jvp.table import Tangent, instantiated
from poot.interpreters.nested import Nested, stage_nested
from poot.interpreters.primitives import type_of, zeros
from poot.interpreters.pytree import (
    TreeDef,
    by_sorted_keys,
    flatten,
    leaf_paths,
    map,
    prefix_leaves,
    unflatten,
)
from poot.interpreters.replay import replay


def _is_float(x: Any) -> bool:
    found: bool = type_of(x).dtype.is_float
    return found


def _shown(tangent: Tangent, primal: Any) -> Any:
    """A tangent as a rule sees it."""
    if not _is_float(primal):
        return np.zeros(type_of(primal).shape, float0)
    return instantiated(tangent, primal)


def _bind(
    make: Callable[[Graph, int], Op], nested: Nested, values: Sequence[Any]
) -> list[Any]:
    """The results of a wrapper; checks of its body report here."""
    op = make(exposed(nested.graph), len(nested.captured))
    found = list(op.bind(*nested.captured, *values))
    count = len(nested.graph.results)
    results = found[:count]
    witnesses = nested.graph.witnesses
    for word, witness in zip(found[count:], witnesses, strict=True):
        results = current().witness(word, witness.message, results)
    return [
        x.with_weak(aval.weak)
        for x, aval in zip(results, nested.result_avals, strict=True)
    ]


class _Custom:
    """What both kinds of custom derivatives share: arguments by place, static ones."""

    _kind: str

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()
    ) -> None:
        require_callable(self._kind, fun)
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._nondiff = tuple(sorted(_places(self._kind, fun, nondiff_argnums)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _arguments(self, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in."""
        if not kwargs:
            return tuple(args)
        try:
            bound = inspect.signature(self._fun).bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"`{name_of(self._fun)}`: {error}") from None
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentError(
                f"`{name_of(self._fun)}`: {', '.join(bound.kwargs)} can only be given "
                f"by name; functions with a {self._kind} rule take all by position"
            )
        return bound.args

    def _split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The static arguments and those that are differentiated."""
        static = [args[n] for n in self._nondiff if n < len(args)]
        moving = [x for n, x in enumerate(args) if n not in self._nondiff]
        return static, moving

    def _of_moving(
        self, args: Sequence[Any], function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """`function` of the arguments that move, the static ones in their places."""

        def of_moving(*moving: Any) -> Any:
            given = iter(moving)
            whole = [
                x if n in self._nondiff else next(given) for n, x in enumerate(args)
            ]
            return function(*whole)

        of_moving.__name__ = name_of(self._fun)
        return of_moving

    def _staged(
        self, args: Sequence[Any]
    ) -> tuple[Nested, list[Any], TreeDef, FlatFunction]:
        _, moving = self._split(args)
        leaves, tree = flatten(tuple(moving))
        values = values_of(f"`{name_of(self._fun)}`", leaves, tree)
        flat = FlatFunction(self._of_moving(args, self._fun), tree, self._kind)
        nested = stage_nested(flat, [x.aval for x in values], name_of(self._fun))
        return nested, values, by_sorted_keys(tree), flat


def _places(where: str, fun: Callable[..., Any], numbers: Any) -> list[int]:
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    count = len(inspect.signature(fun).parameters) if any(n < 0 for n in given) else 0
    return [n + count if n < 0 else n for n in given]


class custom_jvp(_Custom):
    """A function whose forward-mode derivative its user gives, by `defjvp`.

    `f.defjvp(rule)`: `rule(primals, tangents)`, both tuples with an entry an argument,
    gives `(f(*primals), tangent of it)`; static arguments (`nondiff_argnums`) come
    before the two. The rule must be linear in the tangents, and serves reverse mode and
    vmap too.
    """

    _kind = "custom_jvp"
    _rule: Callable[..., Any] | None = None

    def defjvp(
        self, jvp: Callable[..., Any], symbolic_zeros: bool = False
    ) -> Callable[..., Any]:
        """Give the rule. Tangents that are zero everywhere come as arrays of zeros."""
        require_callable("defjvp", jvp)
        if symbolic_zeros:
            raise ArgumentError(
                "defjvp: rules get zeros as arrays; leave symbolic_zeros"
            )
        self._rule = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give a rule an argument: `jvp(tangent, result, *primals)`; None is zero."""
        if self._nondiff:
            raise ArgumentError("defjvps: does not go with nondiff_argnums; use defjvp")

        def rule(primals: Any, tangents: Any) -> Any:
            result = self(*primals)
            parts = [
                jvp(t, result, *primals)
                for jvp, t in zip(jvps, tangents, strict=True)
                if jvp is not None
            ]
            if not parts:
                return result, map(lambda x: zeros(type_of(x)), result)
            total = map(lambda *xs: functools.reduce(operator.add, xs), *parts)
            return result, total

        self._rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rule is None:
            raise ArgumentError(
                f"`{name_of(self._fun)}` is a custom_jvp function without a rule; give "
                "it by defjvp"
            )
        whole = self._arguments(args, kwargs)
        if current() is EAGER:
            return self._fun(*whole)
        nested, values, tree, flat = self._staged(whole)
        static, _ = self._split(whole)

        def flat_rule(around: Any, primals: Any, tangents: Any) -> Any:
            return self._run_rule(static, tree, flat.result_tree, primals, tangents)

        rule = CustomRule(name_of(self._fun), (flat_rule,))
        results = _bind(lambda g, n: CustomJvp(g, rule, n), nested, values)
        return unflatten(flat.result_tree, results)

    def _run_rule(
        self,
        static: Sequence[Any],
        tree: TreeDef,
        result_tree: TreeDef,
        primals: Sequence[Any],
        tangents: Sequence[Tangent],
    ) -> tuple[list[Any], list[Tangent]]:
        where = f"the custom_jvp rule of `{name_of(self._fun)}`"
        shown = [_shown(t, x) for t, x in zip(tangents, primals, strict=True)]
        assert self._rule is not None
        made = self._rule(*static, unflatten(tree, primals), unflatten(tree, shown))
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ArgumentError(
                f"{where} gave a {type(made).__name__}; takes a pair (result, tangent)"
            )
        outs, out_tree = flatten(made[0])
        moved, moved_tree = flatten(made[1])
        for what, given in (("result", out_tree), ("tangent", moved_tree)):
            if by_sorted_keys(given) != result_tree:
                raise ArgumentError(
                    f"{where} gave a {what} of the tree {given}, takes {result_tree}"
                )
        values = values_of(where, outs, out_tree)
        return values, _checked(where, moved, values, result_tree, "tangent")


def _checked(
    where: str, given: Sequence[Any], of: Sequence[Any], tree: TreeDef, what: str
) -> list[Tangent]:
    """Tangents or cotangents that a rule gave, each of the type of its value."""
    found: list[Tangent] = []
    for leaf, value, path in zip(given, of, leaf_paths(tree), strict=True):
        if not _is_float(value) or getattr(leaf, "dtype", None) == float0:
            found.append(None)
            continue
        (x,) = values_of(where, [leaf], flatten(leaf)[1])
        wanted = type_of(value)
        if x.aval.weak and type_of(x).shape == wanted.shape:
            x = x.astype(wanted.dtype.numpy)
        if type_of(x) != wanted:
            raise TypeMismatchError(
                f"{where} gave {path.codify(what)} as {type_of(x)}, its value is "
                f"{wanted}"
            )
        found.append(x)
    return found


class custom_vjp(_Custom):
    """A function whose reverse-mode derivative its user gives, by `defvjp`.

    `f.defvjp(fwd, bwd)`: `fwd(*args)` gives `(f(*args), residuals)`, and
    `bwd(residuals, cotangent of the result)` a tuple with a cotangent an argument (None
    for zero); static arguments (`nondiff_argnums`) come before the two of `bwd`.
    """

    _kind = "custom_vjp"
    _rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Give both rules. Cotangents that are zero come as arrays of zeros.

        `optimize_remat` is taken for JAX's sake and changes nothing.
        """
        require_callable("defvjp", fwd)
        require_callable("defvjp", bwd)
        if symbolic_zeros:
            raise ArgumentError(
                "defvjp: rules get zeros as arrays; leave symbolic_zeros"
            )
        self._rules = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rules is None:
            raise ArgumentError(
                f"`{name_of(self._fun)}` is a custom_vjp function without rules; give "
                "them by defvjp"
            )
        whole = self._arguments(args, kwargs)
        if current() is EAGER:
            return self._fun(*whole)
        nested, values, tree, flat = self._staged(whole)

        def forward(around: Any, primals: Sequence[Any]) -> Any:
            return self._run_forward(whole, tree, flat.result_tree, primals)

        rule = CustomRule(name_of(self._fun), (forward,))
        results = _bind(lambda g, n: CustomVjp(g, rule, n), nested, values)
        return unflatten(flat.result_tree, results)

    def _run_forward(
        self,
        whole: Sequence[Any],
        tree: TreeDef,
        result_tree: TreeDef,
        primals: Sequence[Any],
    ) -> tuple[list[Any], list[Any], Callable[..., Any]]:
        """The results, the residuals, and what pulls a cotangent back with them."""
        assert self._rules is not None
        fwd, bwd = self._rules
        where = f"the custom_vjp rules of `{name_of(self._fun)}`"
        made = self._of_moving(whole, fwd)(*unflatten(tree, primals))
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ArgumentError(
                f"{where}: fwd gave a {type(made).__name__}; takes a pair (result, "
                "residuals)"
            )
        outs, out_tree = flatten(made[0])
        if by_sorted_keys(out_tree) != result_tree:
            raise ArgumentError(
                f"{where}: fwd gave a result of the tree {out_tree}, takes "
                f"{result_tree}"
            )
        values = values_of(where, outs, out_tree)
        kept, kept_tree = flatten(made[1])
        residuals = values_of(f"{where}, residuals", kept, kept_tree)
        static, _ = self._split(whole)
        types = [x.aval for x in primals]

        def pull(saved: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            given = iter(cotangents)
            shown = [
                next(given) if _is_float(x) else np.zeros(type_of(x).shape, float0)
                for x in values
            ]
            found = bwd(
                *static, unflatten(kept_tree, saved), unflatten(result_tree, shown)
            )
            return _cotangents(f"{where}: bwd", found, tree, types)

        return values, residuals, pull


class _Typed:
    """Stands for a value of which only the Aval counts."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval


def _cotangents(
    where: str, found: Any, tree: TreeDef, avals: Sequence[Any]
) -> list[Any]:
    """Those of the float leaves of the arguments, from what a rule gave."""
    if not isinstance(found, tuple | list):
        raise ArgumentError(
            f"{where} gave a {type(found).__name__}; takes a tuple with an entry an "
            "argument"
        )
    parts = tree.children()
    if len(found) != len(parts):
        raise ArgumentError(
            f"{where} gave {len(found)} cotangents, takes {len(parts)}: one an argument"
        )
    made: list[Any] = []
    start = 0
    for given, part in zip(found, parts, strict=True):
        own = avals[start : start + part.num_leaves]
        start += part.num_leaves
        if given is None:
            made += [None] * len(own)
            continue
        leaves, given_tree = flatten(given)
        if by_sorted_keys(given_tree) != part:
            raise ArgumentError(
                f"{where} gave a cotangent of the tree {given_tree}, takes {part}"
            )
        made += _checked(where, leaves, [_Typed(a) for a in own], part, "cotangent")
    return [
        ct for ct, aval in zip(made, avals, strict=True) if aval.type.dtype.is_float
    ]


class custom_vmap(_Custom):
    """A function whose batching its user gives, by `def_vmap`.

    `f.def_vmap(rule)`: `rule(axis_size, in_batched, *args)` gets each batched leaf with
    the batch in front and says by trees of bools which are; it gives `(result,
    out_batched)` alike. Derivatives are those of the function itself.
    """

    _kind = "custom_vmap"
    _rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the rule."""
        require_callable("def_vmap", vmap_rule)
        self._rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rule is None:
            raise ArgumentError(
                f"`{name_of(self._fun)}` is a custom_vmap function without a rule; "
                "give it by def_vmap"
            )
        whole = self._arguments(args, kwargs)
        if current() is EAGER:
            return self._fun(*whole)
        nested, values, tree, flat = self._staged(whole)

        def flat_rule(size: int, batched: Sequence[bool], given: Sequence[Any]) -> Any:
            return self._run_rule(tree, flat.result_tree, size, batched, given)

        rule = CustomRule(name_of(self._fun), (flat_rule,))
        results = _bind(lambda g, n: CustomVmap(g, rule, n), nested, values)
        return unflatten(flat.result_tree, results)

    def _run_rule(
        self,
        tree: TreeDef,
        result_tree: TreeDef,
        size: int,
        batched: Sequence[bool],
        values: Sequence[Any],
    ) -> tuple[list[Any], list[bool]]:
        where = f"the custom_vmap rule of `{name_of(self._fun)}`"
        assert self._rule is not None
        made = self._rule(
            size, list(unflatten(tree, batched)), *unflatten(tree, values)
        )
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ArgumentError(
                f"{where} gave a {type(made).__name__}; takes a pair (result, "
                "out_batched)"
            )
        outs, out_tree = flatten(made[0])
        if by_sorted_keys(out_tree) != result_tree:
            raise ArgumentError(
                f"{where} gave a result of the tree {out_tree}, takes {result_tree}"
            )
        given = prefix_leaves(made[1], made[0], f"{where}: out_batched")
        return values_of(where, outs, out_tree), [bool(flag) for flag in given]


# --- stop_gradient ----------------------------------------------------------


def _zero_rule(around: Any, primals: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
    return list(primals), [None] * len(primals)


_STOP = CustomRule("stop_gradient", (_zero_rule,))


def stop_gradient(x: Any) -> Any:
    """The tree itself, whose derivatives are zero."""

    def stopped(leaf: Any) -> Any:
        (value,) = values_of("stop_gradient", [leaf], flatten(leaf)[1])
        if current() is EAGER or not _is_float(value):
            return value
        (found,) = CustomJvp(identity(type_of(value)), _STOP, 0).bind(value)
        return found.with_weak(value.aval.weak)

    return map(stopped, x)


# --- checkpoint -------------------------------------------------------------


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Any:
    """A function of which reverse mode keeps only the arguments, and runs it again.

    `policy(op, *types)` says of ops whose results are kept too; `checkpoint_policies`
    has some. `prevent_cse` and `concrete` are taken for JAX's sake: what is computed
    again is never merged with the first time.
    """
    if fun is None:
        return functools.partial(
            checkpoint, policy=policy, static_argnums=static_argnums
        )
    require_callable("checkpoint", fun)
    static = _places("checkpoint", fun, static_argnums)
    rule = None if policy is None else CustomRule(name_of(policy), (policy,))
    function: Callable[..., Any] = fun

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if current() is EAGER:
            return function(*args, **kwargs)
        moving = [x for n, x in enumerate(args) if n not in static]
        leaves, tree = flatten((tuple(moving), kwargs))
        values = values_of(f"checkpoint of `{name_of(function)}`", leaves, tree)

        def call(moved: Any, named: Any) -> Any:
            given = iter(moved)
            whole = [x if n in static else next(given) for n, x in enumerate(args)]
            return function(*whole, **named)

        call.__name__ = name_of(function)
        flat = FlatFunction(call, tree, "checkpoint")
        nested = stage_nested(flat, [x.aval for x in values], name_of(function))
        results = _bind(lambda g, n: Remat(g, rule), nested, values)
        return unflatten(flat.result_tree, results)

    return checkpointed


def checkpoint_name(x: Any, name: str) -> Any:
    """The tree itself, its leaves known to policies of `checkpoint` by this name."""

    def named(leaf: Any) -> Any:
        (value,) = values_of("checkpoint_name", [leaf], flatten(leaf)[1])
        if current() is EAGER:
            return value
        (found,) = CheckpointName(identity(type_of(value)), name).bind(value)
        return found.with_weak(value.aval.weak)

    return map(named, x)


# --- closure_convert --------------------------------------------------------


def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` with the traced floats that it takes from around it as more arguments.

    Returns the function of (*args, *those values), and the list of them.
    """
    require_callable("closure_convert", fun)
    leaves, tree = flatten(example_args)
    values = values_of(f"closure_convert of `{name_of(fun)}`", leaves, tree)
    flat = FlatFunction(fun, tree, "closure_convert")
    nested = stage_nested(flat, [x.aval for x in values], name_of(fun))
    hoisted = [type(x) is not Array and _is_float(x) for x in nested.captured]
    taken = [
        x for x, is_hoisted in zip(nested.captured, hoisted, strict=True) if is_hoisted
    ]

    @functools.wraps(fun)
    def converted(*args: Any) -> Any:
        own = args[: len(example_args)]
        more = iter(args[len(example_args) :])
        given, given_tree = flatten(own)
        if by_sorted_keys(given_tree) != by_sorted_keys(tree):
            raise ArgumentError(
                f"closure_convert: given the tree {given_tree}, takes {tree}"
            )
        captured = [
            next(more) if is_hoisted else x
            for x, is_hoisted in zip(nested.captured, hoisted, strict=True)
        ]
        lifted = values_of(
            "closure_convert", [*captured, *given], flatten([*captured, *given])[1]
        )
        return unflatten(flat.result_tree, replay(nested.graph, lifted))

    return converted, taken
