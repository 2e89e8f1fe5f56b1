"""`poot.jit`: trace once a signature, compile, and replay at each further call."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, overload
from weakref import WeakSet

import numpy as np

from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.interpreters.backend import when_changed
from poot.interpreters.config import Settings, settings
from poot.interpreters.donated_replay import DonatingCall, replay_donating
from poot.interpreters.donation import warn_unused
from poot.interpreters.eager import EAGER
from poot.interpreters.flat import FlatFunction, require_callable
from poot.interpreters.nested import Nested, stage_nested
from poot.interpreters.promotion import as_value
from poot.interpreters.pytree import TreeDef, by_sorted_keys, flatten, unflatten
from poot.interpreters.replay import replay
from poot.interpreters.signature import (
    Call,
    Parameters,
    Signature,
    aval_in,
    flat_kinds,
    put_together,
    take_apart,
)
from poot.interpreters.slot_kinds import GuardedKind, Kind, SlotKind, guard, slot_words
from poot.interpreters.stage import StagingInterpreter, traced_function
from poot.interpreters.staged import Compiled, Lowered, Traced, require_concrete
from poot.interpreters.trace import trace
from poot.interpreters.tracer import AnyTracer
from poot.interpreters.transform import named_batches

_aval = attrgetter("aval")
_jitted: WeakSet[JitFunction] = WeakSet()


class JitFunction:
    """A function that is traced once a signature and runs on the device.

    Calls with arrays only take a shorter way: no tree is flattened.
    """

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._parameters = parameters
        self._compiled: dict[Signature, Compiled] = {}
        self._by_kinds: dict[tuple[Settings, tuple[Any, ...]], Compiled] = {}
        # By the named batches around the call too: psum depends on their sizes.
        self._traced_once: dict[
            tuple[Signature, frozenset[tuple[str, int]]], tuple[Nested, TreeDef]
        ] = {}
        # Calls under transformations by signature, and the donations of no use to them.
        self._warned: set[tuple[Any, ...]] = set()
        self._lock = threading.RLock()
        _jitted.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and current() is EAGER:
            try:
                kinds = tuple(map(_aval, args))
            except AttributeError:
                # Not arrays alone.
                return self._call_leaves(args)
            compiled = self._by_kinds.get((settings(), kinds))
            if compiled is not None:
                return compiled.run_arrays(args)
        return self._call(args, kwargs)

    def _call_leaves(self, args: tuple[Any, ...]) -> Any:
        """A call whose arguments may be leaves themselves, numbers say."""
        try:
            kinds = flat_kinds(self._parameters, args)
        except (ArgumentError, DTypeError, ShapeError):
            return self._call(args, {})
        compiled = self._by_kinds.get((settings(), kinds))
        return self._call(args, {}) if compiled is None else compiled.run(args)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        here = current()
        if settings().disable_jit or isinstance(here, StagingInterpreter):
            return self._inline(args, kwargs)
        if here is not EAGER:
            return self._replay(args, kwargs)
        call = take_apart(self._parameters, self._name, args, kwargs)
        compiled = self._compiled.get(call.signature)
        if compiled is None:
            for leaf in call.leaves:
                require_concrete(self._name, leaf)
            self._require_in_range(call)
            compiled = self._compile(call.signature)
        if call.leaves is args and not kwargs:
            # Such a call is known by the kinds of its arguments alone.
            key = call.signature.settings, call.signature.kinds
            self._by_kinds[key] = compiled
        return compiled.run(call.leaves)

    def _require_in_range(self, call: Call) -> None:
        """RangeError for a word outside of its slot's range, before tracing for it."""
        paths = self._parameters.paths(call.signature)
        for leaf, kind, path in zip(
            call.leaves, call.signature.kinds, paths, strict=True
        ):
            if isinstance(kind, SlotKind):
                slot_words(leaf, kind, self._name, path)

    def _compile(self, signature: Signature) -> Compiled:
        with self._lock:
            compiled = self._compiled.get(signature)
            if compiled is None:
                compiled = self._traced(signature).compile()
                self._compiled[signature] = compiled
            return compiled

    def _traced(self, signature: Signature) -> Traced:
        made = trace(self._function, self._name, self._parameters, signature)
        return Traced(made, self._parameters)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run within what is current: its graph takes in the function's ops."""
        call = take_apart(self._parameters, self._name, args, kwargs)
        lift = current().lift
        tree = unflatten(
            by_sorted_keys(call.signature.tree),
            [lift(value) for value in self._values(call)],
        )
        statics = [(place, value) for place, _, value in call.signature.statics]
        own_args, own_kwargs = put_together(statics, len(args), tree)
        leaves, result_tree = flatten(self._function(*own_args, **own_kwargs))
        values = [lift(as_value(leaf)) for leaf in leaves]
        return unflatten(by_sorted_keys(result_tree), values)

    def _replay(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run what was traced once under the transformation that is current."""
        call = take_apart(self._parameters, self._name, args, kwargs)
        key = call.signature, frozenset(named_batches().items())
        known = self._traced_once.get(key)
        if known is None:
            known = self._stage(call.signature)
            if not any(isinstance(x, AnyTracer) for x in known[0].captured):
                self._traced_once[key] = known
        nested, tree = known
        results = self._run_replayed(nested, call)
        return unflatten(
            tree,
            [
                x.with_weak(aval.weak)
                for x, aval in zip(results, nested.result_avals, strict=True)
            ],
        )

    def _run_replayed(self, nested: Nested, call: Call) -> list[Any]:
        """The results of a call that is replayed; what it donates is deleted."""
        values = self._values(call)
        donated = self._parameters.donated_leaves(call.signature)
        if not donated or traced_function() is not None:
            return replay(nested.graph, [*nested.captured, *values])

        def warn(unused: list[str]) -> None:
            # Once, as a call that is traced.
            if (call.signature, *unused) not in self._warned:
                self._warned.add((call.signature, *unused))
                warn_unused(self._name, unused)

        paths = self._parameters.paths(call.signature)
        giving = DonatingCall(self._name, call.leaves, paths, donated)
        return replay_donating(nested.graph, nested.captured, values, giving, warn)

    def _values(self, call: Call) -> list[Any]:
        """The leaves as values of the current interpreter, their ranges checked."""
        kinds = call.signature.kinds
        if not self._parameters.slots:
            return list(map(as_value, call.leaves))
        paths = self._parameters.paths(call.signature)
        values = []
        for leaf, kind, path in zip(call.leaves, kinds, paths, strict=True):
            if isinstance(kind, SlotKind) and kind.declared is not None:
                words = slot_words(leaf, kind, self._name, path)
                values.append(as_value(np.asarray(words, np.int32)))
                continue
            values.append(as_value(leaf))
            if isinstance(kind, GuardedKind):
                guard(values[-1], kind, self._name, path)
        return values

    def _stage(self, signature: Signature) -> tuple[Nested, TreeDef]:
        """The function's graph, with what it takes from around it, and its result."""
        statics = [(place, value) for place, _, value in signature.statics]

        def function(traced: Any, named: Any) -> Any:
            own_args, own_kwargs = put_together(
                statics, signature.positional, (traced, named)
            )
            return self._function(*own_args, **own_kwargs)

        function.__name__ = self._name
        flat = FlatFunction(function, signature.tree, "jit")
        avals = list(map(aval_in, signature.kinds))
        return stage_nested(flat, avals, self._name), flat.result_tree

    # --- around calls -------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments; a ShapeDtypeStruct may stand for an array."""
        call = take_apart(self._parameters, self._name, args, kwargs)
        return self._traced(call.signature)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for these arguments."""
        return self.trace(*args, **kwargs).lower()

    def leaves(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a call gives for each of the arguments of its graph, in their order."""
        return tuple(take_apart(self._parameters, self._name, args, kwargs).leaves)

    def clear_cache(self) -> None:
        """Forget what was traced and compiled."""
        with self._lock:
            self._compiled.clear()
            self._by_kinds.clear()
            self._traced_once.clear()
            self._warned.clear()

    @property
    def cache_size(self) -> int:
        """How many signatures have been compiled."""
        return len(self._compiled)

    def __reduce__(self) -> str:
        # By name, as plain functions are pickled and copied.
        return getattr(self._function, "__qualname__", self._name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundJitFunction(self, instance)

    def __repr__(self) -> str:
        return f"<jitted {getattr(self._function, '__qualname__', self._name)}>"


class BoundJitFunction:
    """A jitted method of one object, which is its first argument."""

    def __init__(self, function: JitFunction, instance: Any) -> None:
        functools.update_wrapper(self, function)
        self._jitted = function
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._jitted(self._instance, *args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments."""
        return self._jitted.trace(self._instance, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for these arguments."""
        return self._jitted.lower(self._instance, *args, **kwargs)

    def leaves(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a call gives for each of the arguments of its graph, in their order."""
        return self._jitted.leaves(self._instance, *args, **kwargs)

    def clear_cache(self) -> None:
        """Forget what was traced and compiled, for all objects."""
        self._jitted.clear_cache()


@overload
def jit(
    function: None = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    donate_argnames: Any = (),
    slots: Mapping[str, Kind] | None = None,
) -> Callable[[Callable[..., Any]], JitFunction]: ...


@overload
def jit(
    function: Callable[..., Any],
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    donate_argnames: Any = (),
    slots: Mapping[str, Kind] | None = None,
) -> JitFunction: ...


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    donate_argnames: Any = (),
    slots: Mapping[str, Kind] | None = None,
) -> JitFunction | Callable[[Callable[..., Any]], JitFunction]:
    """Run a function on the device as one compiled program.

    Use it as `@jit` or `@jit(static_argnums=…)`. The function is traced once for each
    combination of shapes, dtypes, tree forms and static arguments, so it must be free
    of side effects. A donated argument's memory is reused for a result of its type, or
    given back after the call if one of its size has another; the array is deleted by
    the call, under grad and vmap too. If no result is as large, a warning says so, and
    it stays. Within another jitted function nothing is donated but by that.

    `slots` declares integer arguments that the host writes at each call, and the range
    that is checked before anything runs, or on the device if an array there is given:
    `slots={"pos": poot.slots.Pos(0, 15)}`. Paths such as "state/pos" lead into
    containers; one that ends above leaves holds for all of these.
    """
    options = (static_argnums, static_argnames, donate_argnums, donate_argnames, slots)

    def decorate(function: Any) -> JitFunction:
        require_callable("jit", function)
        return JitFunction(function, Parameters.of(function, *options))

    return decorate if function is None else decorate(function)


def make_graph(
    function: Callable[..., Any], *, static_argnums: Any = (), static_argnames: Any = ()
) -> Callable[..., Graph]:
    """A function that gives the graph which `function` traces to on its arguments."""
    require_callable("make_graph", function)
    jitted = jit(
        function, static_argnums=static_argnums, static_argnames=static_argnames
    )

    @functools.wraps(function)
    def graph_of(*args: Any, **kwargs: Any) -> Graph:
        return jitted.trace(*args, **kwargs).graph

    return graph_of


def clear_jit_caches() -> None:
    """Forget what all jitted functions have traced and compiled."""
    for jitted in list(_jitted):
        jitted.clear_cache()


when_changed(clear_jit_caches)
