"""The stages of a jitted function that can be looked at: traced, lowered, compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from poot.core.errors import ArgumentError, NanError
from poot.core.graph import Graph
from poot.core.interpreter import interpreting
from poot.core.source import user_source
from poot.interpreters.array import Array
from poot.interpreters.backend import Buffer, Executable, backend
from poot.interpreters.donation import given_twice
from poot.interpreters.eager import EAGER
from poot.interpreters.hosted import HostedExecutable
from poot.interpreters.nans import has_nan
from poot.interpreters.pytree import unflatten
from poot.interpreters.recording import load
from poot.interpreters.replay import replay
from poot.interpreters.signature import (
    Parameters,
    ShapeDtypeStruct,
    aval_in,
    describe_kinds,
    take_apart,
)
from poot.interpreters.slot_kinds import SlotKind, slot_words
from poot.interpreters.trace import Trace
from poot.interpreters.tracer import AnyTracer

if TYPE_CHECKING:
    from poot.lowering.compile import Lowered as LoweredGraph
    from poot.lowering.program import Program


class Traced:
    """A function as a graph of primitives, for one signature."""

    def __init__(self, trace: Trace, parameters: Parameters) -> None:
        self._trace = trace
        self._parameters = parameters

    @property
    def graph(self) -> Graph:
        """The graph as traced."""
        return self._trace.graph

    def lower(self) -> Lowered:
        """Run the passes for the device in use."""
        lowered = self._lowered()
        assert lowered.graph is not None
        return lowered

    def compile(self) -> Compiled:
        """Lower and compile; what an earlier process planned comes from the disk."""
        return self._lowered().compile()

    def _lowered(self) -> Lowered:
        """Its passes run when they are needed."""
        lowered = backend().lower(self._trace.graph)
        return Lowered(self._trace, self._parameters, lowered)

    def __str__(self) -> str:
        return f"traced {self._trace.name}: {self.graph}"

    __repr__ = __str__


class Lowered:
    """A function's graph after the passes."""

    def __init__(
        self, trace: Trace, parameters: Parameters, lowered: LoweredGraph
    ) -> None:
        self._trace = trace
        self._parameters = parameters
        self._lowered = lowered

    @property
    def name(self) -> str:
        """What the function is called."""
        return self._trace.name

    @property
    def graph(self) -> Graph:
        """The graph with the composites that the passes made."""
        return self._lowered.graph

    def report(self) -> str:
        """Which rewrites fired, and why others did not."""
        return str(self._lowered.report)

    def compile(self) -> Compiled:
        """Plan, write kernels and load them on the device."""
        executable = load(self._lowered, generic=False)
        return Compiled(self._trace, self._parameters, self._lowered, executable)

    def __str__(self) -> str:
        return f"lowered {self._trace.name}: {self.graph}"

    __repr__ = __str__


class Compiled:
    """A function ready to run on arguments of one signature."""

    def __init__(
        self,
        trace: Trace,
        parameters: Parameters,
        lowered: LoweredGraph,
        executable: Executable,
    ) -> None:
        self._trace = trace
        self._parameters = parameters
        self._lowered = lowered
        self._executable = executable
        self._start = executable.call
        self._pack = _packer(trace)
        kinds = trace.signature.kinds
        self._slots = tuple(
            (number, kind, path)
            for number, (kind, path) in enumerate(zip(kinds, trace.paths, strict=True))
            if isinstance(kind, SlotKind)
        )
        self._sync = trace.signature.settings.sync_checks
        self._looks_for_nans = trace.signature.settings.debug_nans
        self._simple = not (
            self._slots or trace.donated or self._sync or self._looks_for_nans
        )

    @property
    def name(self) -> str:
        """What the function is called."""
        return self._trace.name

    @property
    def graph(self) -> Graph:
        """The graph that was planned."""
        return self._lowered.graph

    @property
    def program(self) -> Program:
        """What the device runs: dispatches, copies and buffers."""
        return self._executable.program

    def spirv(self) -> dict[str, bytes]:
        """The SPIR-V words of each kernel, by its name."""
        kernels = self.program.kernels
        return {name: kernel.words for name, kernel in kernels.items()}

    def report(self) -> str:
        """Which rewrites fired, why others did not, and each launch that is left."""
        replay = self._executable.replay
        if isinstance(self._executable, HostedExecutable):
            return f"{self._lowered.report}\n{replay}"
        return self._lowered.report.with_program(self.program, replay)

    def __str__(self) -> str:
        if isinstance(self._executable, HostedExecutable):
            name = self._trace.name
            return f"compiled {name}, cut at calls of the host: {self.graph}"
        return f"compiled {self._trace.name}: {self.program}"

    __repr__ = __str__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the signature that it was compiled for."""
        trace = self._trace
        call = take_apart(self._parameters, trace.name, args, kwargs)
        wanted, given = trace.signature, call.signature
        if (given.tree, given.kinds, given.statics) != (
            wanted.tree,
            wanted.kinds,
            wanted.statics,
        ):
            raise ArgumentError(
                f"`{trace.name}` was compiled for {describe_kinds(wanted.kinds)} in "
                f"{wanted.tree}, given {describe_kinds(given.kinds)} in {given.tree}; "
                "trace it anew, or call the jitted function"
            )
        return self.run(call.leaves)

    # --- running ------------------------------------------------------------

    def run_arrays(self, arrays: Sequence[Any]) -> Any:
        """Run on leaves that are Arrays, which their signature has shown."""
        if not self._simple:
            return self.run(arrays)
        buffers = [array.buffer for array in arrays]
        if None in buffers:
            self._refuse_deleted(arrays)
        return self._pack(self._start(buffers)[0])

    def run(self, leaves: Sequence[Any]) -> Any:
        """Run on leaves of any kind."""
        buffers, numbers = self.bound(leaves)
        claims = self._claim(leaves, buffers) if self._trace.donated else []
        try:
            results, completion = self._start(buffers, numbers)
            if self._looks_for_nans:
                self._require_numbers(_revived(leaves, claims), results)
        except BaseException:
            for _, array, buffer in claims:
                array.restore(buffer)
            raise
        self._release(claims)
        if self._sync:
            completion.check()
        return self._pack(results)

    def bound(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The buffers of a call, and the numbers for its slots; their ranges hold."""
        name = self._trace.name
        numbers = [
            slot_words(leaves[number], kind, name, path)
            for number, kind, path in self._slots
        ]
        return self._buffers(leaves), numbers

    def _claim(self, leaves: Sequence[Any], buffers: list[Any]) -> list[_Claim]:
        """Take the donated arrays' memory: no one else may use it from now on."""
        trace = self._trace
        self._require_single_use(leaves)
        claims: list[_Claim] = []
        for number in trace.donated:
            leaf, path = leaves[number], trace.paths[number]
            if type(leaf) is Array:
                buffer = leaf.claim(f"was donated to `{trace.name}` as {path}")
                if buffer is None:
                    # Another thread was first.
                    for _, array, claimed in claims:
                        array.restore(claimed)
                    self._refuse_deleted(leaves)
                claims.append((number, leaf, buffer))
                buffers[number] = buffer
            if self._looks_for_nans:
                # Its numbers may be needed once more.
                buffers[number].shared = True
        return claims

    def _release(self, claims: Sequence[_Claim]) -> None:
        """Give back the memory of donated arrays that no result stands in."""
        for number, _, buffer in claims:
            if number in self._trace.released and not buffer.shared:
                buffer.close()

    def _require_numbers(self, leaves: Sequence[Any], results: Sequence[Any]) -> None:
        """NanError if a result has a NaN, of the op that gave it first."""
        trace = self._trace
        if not any(map(has_nan, map(Array, results, trace.result_avals))):
            return
        self._op_by_op(leaves)
        raise NanError(
            f"NaN: `{trace.name}` gave it jitted, but not op by op ({user_source()})"
        )

    def _op_by_op(self, leaves: Sequence[Any]) -> list[Array]:
        """What the graph as traced gives, each op run at once."""
        graph = self._trace.graph
        values = [
            leaf
            if type(leaf) is Array
            else EAGER.lift(np.asarray(leaf).astype(graph.type(value).dtype.numpy))
            for leaf, value in zip(leaves, graph.arguments, strict=True)
        ]
        with interpreting(EAGER):
            return replay(graph, values)

    def _buffers(self, leaves: Sequence[Any]) -> list[Any]:
        buffers: list[Any] = []
        for leaf, kind in zip(leaves, self._trace.signature.kinds, strict=True):
            if isinstance(kind, SlotKind):
                buffers.append(None)
            elif type(leaf) is Array:
                buffers.append(leaf.buffer or self._refuse_deleted(leaves))
            else:
                require_concrete(self._trace.name, leaf)
                native = leaf.astype(aval_in(kind).type.dtype.numpy, copy=False)
                buffers.append(backend().upload(native))
        return buffers

    def _refuse_deleted(self, leaves: Sequence[Any]) -> NoReturn:
        for leaf, path in zip(leaves, self._trace.paths, strict=True):
            if type(leaf) is Array and leaf.buffer is None:
                raise leaf.deleted_error(f"argument {path} of `{self._trace.name}`")
        raise AssertionError

    def _require_single_use(self, leaves: Sequence[Any]) -> None:
        uses = Counter(map(id, leaves))
        for number in self._trace.donated:
            leaf = leaves[number]
            if type(leaf) is not Array or uses[id(leaf)] == 1:
                continue
            paths, places = self._trace.paths, range(len(leaves))
            other = next(i for i in places if i != number and leaves[i] is leaf)
            raise given_twice(self._trace.name, paths[number], paths[other])


# The number of a leaf, the array whose memory a call has taken, and that.
_Claim = tuple[int, Array, Buffer]


def _revived(leaves: Sequence[Any], claims: Sequence[_Claim]) -> list[Any]:
    """The leaves, with arrays in place of those that have lost their memory."""
    revived = {id(array): Array(buffer, array.aval) for _, array, buffer in claims}
    return [revived.get(id(leaf), leaf) for leaf in leaves]


def require_concrete(name: str, leaf: Any) -> None:
    """An error for a leaf that a function can be traced for, but not run on."""
    if isinstance(leaf, AnyTracer):
        raise leaf.misplaced()
    if isinstance(leaf, ShapeDtypeStruct):
        raise ArgumentError(
            f"`{name}` runs on arrays; a ShapeDtypeStruct stands for one in .trace() "
            "only"
        )


def _packer(trace: Trace) -> Callable[[Sequence[Any]], Any]:
    """What makes the function's result of the buffers of the graph's results."""
    avals, tree = trace.result_avals, trace.result_tree
    repeated = len(set(trace.graph.results)) < len(avals)

    def arrays(buffers: Sequence[Any]) -> list[Array]:
        if repeated:
            # One buffer may be several results; none of them may be written to.
            for buffer in buffers:
                buffer.shared = True
        return list(map(Array, buffers, avals))

    if tree.is_leaf():
        (aval,) = avals
        return lambda buffers: Array(buffers[0], aval)
    if tree.type is tuple and all(child.is_leaf() for child in tree.children()):
        return lambda buffers: tuple(arrays(buffers))
    return lambda buffers: unflatten(tree, arrays(buffers))
