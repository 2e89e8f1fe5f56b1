"""A Program made ready on a device: recorded once, replayed a call."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from poot.core.errors import (
    CheckError,
    DeletedArrayError,
    DeviceError,
    LoweringError,
)
from poot.lowering.program import (
    TABLE_SPACES,
    Dispatch,
    Program,
    ResultSpec,
    Space,
)
from poot.vulkan.addresses import AddressPlan, Place, aligned, plan_addresses
from poot.vulkan.allocator import Chunk
from poot.vulkan.completion import Completion
from poot.vulkan.context import Context, ContextLayout, ContextRecorder
from poot.vulkan.control import Lowered, lower_control
from poot.vulkan.emit import CommandPool, Emitter
from poot.vulkan.memory import DeviceBuffer, Pool
from poot.vulkan.pipelines import Pipeline
from poot.vulkan.profiled import ProfiledReplay, timed
from poot.vulkan.queue import Submission
from poot.vulkan.recorder import record, work_limit
from poot.vulkan.replay import make_ready, run_steps
from poot.vulkan.slots import make_packer
from poot.vulkan.timestamps import TimedEmitter, Timestamps

if TYPE_CHECKING:
    from poot.vulkan.device import Device

# Small programs are called back to back, so that more calls should be under way.
_CONTEXTS_SMALL, _CONTEXTS_LARGE = 4, 2
_SMALL_COMMANDS = 64
_LABELS_SHOWN = 4
_WORD_BYTES = 4

Arguments = Sequence[DeviceBuffer | None]


class Resources:
    """What an executable holds on the device, to be freed when its replays have ended.

    Apart from the executable, so that the device can free it after that is collected.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.contexts: list[Context] = []
        self.buffers: list[DeviceBuffer] = []
        # Others may hold these too; here they outlive the replays that read them.
        self.consts: tuple[DeviceBuffer, ...] = ()
        self.pipelines: list[Pipeline] = []
        self.command_pools: list[CommandPool] = []
        self.timestamps: list[Timestamps] = []

    @property
    def last_value(self) -> int:
        return max((context.value for context in self.contexts), default=0)

    def close(self) -> None:
        """Free everything; no replay may be under way."""
        for context in self.contexts:
            if context.completion is not None:
                context.completion.settle()
                context.completion = None
        for buffer in (*self.buffers, *self.consts):
            buffer.last_use = max(buffer.last_use, self.last_value)
        for buffer in self.buffers:
            buffer.close()
        for pool in self.command_pools:
            pool.close()
        for timestamps in self.timestamps:
            timestamps.close()
        self.device.pipelines.release(self.pipelines)
        self.contexts, self.buffers, self.pipelines = [], [], []
        self.command_pools, self.timestamps = [], []
        self.consts = ()


class Executable:
    """A Program on one device. Calls may come from several threads at once.

    A call returns as soon as the work is submitted; it waits only if all replay
    contexts are busy. Where the program holds a While it waits for that to end; such
    calls of one executable take turns, and until one has returned no other thread may
    delete or donate the buffers that it was given.
    """

    def __init__(
        self, device: Device, program: Program, consts: Sequence[DeviceBuffer] = ()
    ) -> None:
        self.device = device
        self.program = program
        _check_consts(program, consts)
        if program.setup is not None:
            consts = (*consts, *_computed(device, program.setup))
        device.collect()
        lowered = lower_control(program, device.info)
        self.commands = record(
            lowered.program.body, work_limit(device.info), lowered.polls_offset
        )
        dispatches = self.commands.launches
        plan = plan_addresses(dispatches)
        self.label = _label(dispatches)
        self._consts = tuple(consts)
        self._queue = device.queue
        self._arrays = device.arrays
        self._witnesses = program.witnesses
        self._turn = 0
        self._polls = bool(self.commands.polls)
        # Held by a call between its submissions, where it has several looks to take.
        self._driving = threading.Lock()
        self._profiled: ProfiledReplay | None = None
        self._closed = True
        self._pack = make_packer(program.slots) if program.slots else None
        self._needed = _needed(program)
        self._donated = sorted(program.donated)
        self._sources, self._targets = _dynamic_cells(plan, program)
        self._makers = [_maker(device.arrays, spec) for spec in program.results]
        self._written = _written(program)
        self._resources = Resources(device)
        self._resources.consts = self._consts
        device.adopt(self._resources)
        try:
            self._prepare(lowered, plan)
        except BaseException:
            device.retire(self._resources)
            raise
        self._contexts = self._resources.contexts
        self._closed = False

    def _prepare(self, lowered: Lowered, plan: AddressPlan) -> None:
        """Make pipelines, memory and contexts, and record them."""
        device, program, held = self.device, lowered.program, self._resources
        kernels = [dispatch.kernel for dispatch in self.commands.launches]
        held.pipelines = device.pipelines.acquire(kernels)
        metadata = device.upload(np.frombuffer(plan.metadata, dtype=np.uint8))
        arena = device.arrays.allocate(program.arena_bytes)
        grids = device.upload(lowered.grids)
        held.buffers += [metadata, arena, grids]
        shared: dict[Place, DeviceBuffer] = {
            (Space.CONST, number): const
            for number, const in enumerate((*self._consts, grids))
        }
        shared[Space.ARENA, 0] = arena
        layout = ContextLayout(program, plan, self.commands)
        recorder_of = functools.partial(
            ContextRecorder,
            plan=plan,
            layout=layout,
            pipelines=held.pipelines,
            shared=shared,
            metadata=metadata,
            # The host reads results in place where memory is unified.
            host_reads=device.info.unified_memory or bool(program.witnesses),
        )
        recorder = recorder_of(self.commands)
        small = len(self.commands.commands) <= _SMALL_COMMANDS
        count = _CONTEXTS_SMALL if small else _CONTEXTS_LARGE
        per_context = len(self.commands.buffers)
        queue = device.queue
        all_handles = self._command_buffers(count * per_context)
        for number in range(count):
            low = number * per_context
            handles = all_handles[low : low + per_context]
            context = self._make_context(layout, handles)
            context.following = (number + 1) % count
            emitters = [Emitter(queue.functions, handle) for handle in handles]
            recorder.record(context, emitters)
        self._layout, self._recorder_of = layout, recorder_of

    def _command_buffers(self, count: int) -> list[int]:
        queue = self._queue
        pool = CommandPool(
            queue.functions, self.device.handle, queue.family, count, resettable=False
        )
        self._resources.command_pools.append(pool)
        return pool.command_buffers

    def _make_profiled(self) -> ProfiledReplay:
        """One more context, whose recording has timestamps in it."""
        device, functions = self.device, self.device.functions
        commands = self.commands.one_by_one()
        handles = self._command_buffers(len(commands.buffers))
        timestamps = [
            Timestamps(functions, device.handle, 2 * len(timed(buffer)))
            for buffer in commands.buffers
        ]
        self._resources.timestamps += timestamps
        context = self._make_context(self._layout, handles)
        emitters = [
            TimedEmitter(functions, handle, stamps)
            for handle, stamps in zip(handles, timestamps, strict=True)
        ]
        self._recorder_of(commands).record(context, emitters)
        return ProfiledReplay(
            self._queue, device.clock, commands, context, handles, timestamps
        )

    def _make_context(self, layout: ContextLayout, handles: Sequence[int]) -> Context:
        device, held = self.device, self._resources
        memory = device.tables.allocate(aligned(layout.memory_bytes))
        readback = device.readback.allocate(layout.packet_bytes)
        held.buffers += [memory, readback]
        # The host writes there now, while an earlier owner's work may still run.
        device.queue.wait(max(memory.last_use, readback.last_use))
        steps = make_ready(self.commands.steps, device.queue, handles)
        context = Context(layout, memory, readback, steps)
        held.contexts.append(context)
        return context

    def call(
        self, buffers: Arguments, scalars: Sequence[Any] = ()
    ) -> tuple[list[DeviceBuffer], Completion]:
        """Run one replay; its results are written when the Completion is done.

        `buffers` has one buffer an input, None where the input is a slot; `scalars` one
        number a slot, in the order of the program's slots. Donated buffers belong to
        the results afterwards.
        """
        queue = self._queue
        if queue.failure is not None:
            queue.raise_failure()
        if self._closed:
            raise DeviceError(f"the executable of {self.label} was closed")
        if self._donated:
            buffers = self._claim(buffers)
        parents: tuple[Completion, ...] = ()
        used = []
        for index, size in self._needed:
            buffer = buffers[index]
            if buffer is None or buffer.size_bytes < size or not buffer.address:
                self._refuse(index, buffer)
            used.append(buffer)
            if buffer.completion is not None:
                parents = _with_open_check(parents, buffer)
        results = self._make_results(buffers)
        if not self.commands.buffers:
            return results, Completion(queue, 0, parents)
        completion, earlier = None, queue.submitted
        try:
            while completion is None:
                completion = self._submit(used, scalars, results, parents)
        except BaseException as error:
            last = self._resources.last_value
            for buffer in (*used, *results):
                buffer.ready = buffer.last_use = max(buffer.last_use, last)
            if last > earlier:
                self._spoil(buffers, error)
            raise
        value = completion.value
        for buffer in used:
            # Another thread may have used it later and come here before.
            if buffer.last_use < value:
                buffer.last_use = value
        suspect = completion if parents or self._witnesses else None
        for number in self._written:
            result = results[number]
            result.ready = result.last_use = value
            result.completion = suspect
        for index in self._donated:
            # State may be written without being a result.
            state = buffers[index]
            assert state is not None
            state.ready = value
            state.completion = suspect
        return results, completion

    def _spoil(self, buffers: Arguments, error: BaseException) -> None:
        """Let no one read donated buffers that some work may have written to."""
        failure = CheckError(
            f"a donated array is spoilt: the call of {self.label} ended with "
            f"{type(error).__name__} after part of its work had begun"
        )
        for index in self._donated:
            state = buffers[index]
            assert state is not None
            state.completion = Completion.failed(self._queue, state.ready, failure)

    def _submit(
        self,
        used: Sequence[DeviceBuffer],
        scalars: Sequence[Any],
        results: Sequence[DeviceBuffer],
        parents: tuple[Completion, ...],
    ) -> Completion | None:
        """Replay the next context; None after a wait for one that was busy."""
        queue = self._queue
        if self.device.profilers:
            return self._profile(used, scalars, results, parents)
        if self._polls:
            with self._driving:
                context = self._contexts[self._turn]
                queue.wait(context.value)
                self._fill(context, used, scalars, results)
                return self._drive(context, parents)
        with queue.lock:
            context = self._contexts[self._turn]
            last = context.value
            if last <= queue.completed or last <= queue.poll():
                self._fill(context, used, scalars, results)
                return self._replay(context, parents)
        queue.wait(last)
        return None

    def _replay(self, context: Context, parents: tuple[Completion, ...]) -> Completion:
        """Submit a context; the caller holds the queue's lock."""
        queue, label = self._queue, self.label
        self._turn = context.following
        if context.submission is not None:
            context.value = queue.submit_locked(context.submission, label)
            return self._completion(context, parents)

        def submit(submission: Submission) -> None:
            context.value = queue.submit_locked(submission, label)

        try:
            run_steps(context.steps, submit, _no_look)
        finally:
            completion = self._completion(context, parents)
        return completion

    def _drive(self, context: Context, parents: tuple[Completion, ...]) -> Completion:
        """Submit a context piece by piece, as what it polls asks for."""
        queue = self._queue
        if self._closed:
            raise DeviceError(f"the executable of {self.label} was closed")
        self._turn = context.following

        def submit(submission: Submission) -> None:
            context.value = queue.submit(submission, self.label)

        def look(word: int) -> int:
            queue.wait(context.value)
            return context.packet[word // _WORD_BYTES]

        try:
            run_steps(context.steps, submit, look)
        finally:
            # Made in any case, so that the packet is read before it is used again.
            completion = self._completion(context, parents)
        return completion

    def _profile(
        self,
        used: Sequence[DeviceBuffer],
        scalars: Sequence[Any],
        results: Sequence[DeviceBuffer],
        parents: tuple[Completion, ...],
    ) -> Completion:
        """Replay with timestamps, and wait for it."""
        queue = self._queue
        with self._driving:
            if self._profiled is None:
                self._profiled = self._make_profiled()
            replay = self._profiled
            context = replay.context
            queue.wait(context.value)
            self._fill(context, used, scalars, results)

            def look(word: int) -> int:
                return context.packet[word // _WORD_BYTES]

            try:
                replay.run(self.label, look, self.device.profilers)
            finally:
                completion = self._completion(context, parents)
        return completion

    def _fill(
        self,
        context: Context,
        used: Sequence[DeviceBuffer],
        scalars: Sequence[Any],
        results: Sequence[DeviceBuffer],
    ) -> None:
        """Write what changed of an idle context's memory."""
        cached, table = context.cached, context.table
        for cell, number, offset in self._sources:
            address = used[number].address + offset
            if cached[cell] != address:
                table[cell] = cached[cell] = address
        for cell, number, offset in self._targets:
            address = results[number].address + offset
            if cached[cell] != address:
                table[cell] = cached[cell] = address
        if self._pack is not None:
            self._pack(context.slots, scalars)
        if context.completion is not None:
            # Its packet is about to be written anew.
            context.completion.settle()

    def _completion(
        self, context: Context, parents: tuple[Completion, ...]
    ) -> Completion:
        """The end of what a context has submitted last."""
        queue, value = self._queue, context.value
        if not self._witnesses:
            return Completion(queue, value, parents)
        context.completion = Completion(
            queue, value, parents, self._witnesses, context.packet
        )
        return context.completion

    def _make_results(self, buffers: Arguments) -> list[DeviceBuffer]:
        results = []
        for spec, (dropped, size) in self._makers:
            if spec is not None:
                results.append(self._passed_on(spec, buffers))
                continue
            try:
                results.append(DeviceBuffer(dropped.pop(), size))
            except IndexError:
                results.append(self._arrays.allocate(size))
        return results

    def _passed_on(self, spec: ResultSpec, buffers: Arguments) -> DeviceBuffer:
        """A result that is an input or a constant."""
        if spec.const_index is not None:
            result = self._consts[spec.const_index]
        else:
            assert spec.input_index is not None
            given = buffers[spec.input_index]
            if given is None:
                self._refuse(spec.input_index, given)
            result = given
        # Whoever holds a constant, or an argument not donated, holds it still.
        if spec.input_index not in self.program.donated:
            result.shared = True
        return result

    def _claim(self, buffers: Arguments) -> Arguments:
        """Arguments in which nobody else holds the donated buffers."""
        claimed = list(buffers)
        uses = Counter(map(id, buffers))
        for index in self._donated:
            buffer = claimed[index]
            if buffer is None or buffer.is_closed:
                self._refuse(index, buffer)
            if buffer.shared or uses[id(buffer)] > 1:
                claimed[index] = self.device.duplicate(buffer)
        return claimed

    def _refuse(self, index: int, buffer: DeviceBuffer | None) -> NoReturn:
        needed = self.program.inputs[index]
        if buffer is None:
            raise LoweringError(f"input {index} ({needed}) was given no buffer")
        if buffer.is_closed:
            raise DeletedArrayError(
                f"input {index} ({needed}) was deleted or donated before this call"
            )
        raise LoweringError(
            f"input {index} ({needed}) needs {needed.size_bytes} bytes; its buffer has "
            f"{buffer.size_bytes}"
        )

    @property
    def replay(self) -> str:
        """What a call runs, in numbers, for reports."""
        return str(self.commands.counts())

    def close(self) -> None:
        """Wait for the calls under way and free everything; later calls raise."""
        with self._driving, self._queue.lock:
            if self._closed:
                return
            self._closed = True
        self._queue.wait(self._resources.last_value)
        self.device.retire(self._resources)
        self.device.collect()

    def __del__(self) -> None:
        # May run anywhere, so the freeing itself is left to the device.
        if not getattr(self, "_closed", True):
            self._closed = True
            self.device.retire(self._resources)


def _no_look(word: int) -> int:
    raise AssertionError("only programs with a While have words to look at")


def _check_consts(program: Program, consts: Sequence[DeviceBuffer]) -> None:
    needed_types = program.given_consts
    count = len(needed_types)
    if len(consts) != count:
        raise LoweringError(f"the program has {count} constants; given {len(consts)}")
    for number, (needed, const) in enumerate(zip(needed_types, consts, strict=True)):
        if const.is_closed or const.size_bytes < needed.size_bytes:
            raise LoweringError(
                f"constant {number} ({needed}) needs {needed.size_bytes} bytes; its "
                f"buffer has {0 if const.is_closed else const.size_bytes}"
            )


def _computed(device: Device, setup: Program) -> list[DeviceBuffer]:
    """The results of a program that takes nothing."""
    executable = Executable(device, setup)
    try:
        results, completion = executable.call(())
        completion.wait()
    finally:
        executable.close()
    for result in results:
        result.shared = True
    return results


def _needed(program: Program) -> list[tuple[int, int]]:
    """The inputs that come as buffers, with the bytes that each must have."""
    slots = {slot.input_index for slot in program.slots}
    return [
        (index, needed.size_bytes)
        for index, needed in enumerate(program.inputs)
        if index not in slots and needed.size
    ]


_Cell = tuple[int, int, int]


def _dynamic_cells(
    plan: AddressPlan, program: Program
) -> tuple[list[_Cell], list[_Cell]]:
    """The table cells that a call writes, for inputs and for results.

    Each is (cell, number, offset), where the number is that of the result, or of the
    input among those that `_needed` lists. Buffers without bytes have no address;
    their cells stay zero.
    """
    numbers = {index: number for number, (index, _) in enumerate(_needed(program))}
    sources: list[_Cell] = []
    targets: list[_Cell] = []
    for cell, ((space, index), offset) in enumerate(plan.entries):
        if space is Space.RESULT:
            if program.results[index].type.size:
                targets.append((cell, index, offset))
        elif space in TABLE_SPACES and index in numbers:
            sources.append((cell, numbers[index], offset))
    return sources, targets


def _maker(
    pool: Pool, spec: ResultSpec
) -> tuple[ResultSpec | None, tuple[list[Chunk], int]]:
    """How a call comes by a result: by a spec, or a fresh buffer of some size."""
    if spec.input_index is None and spec.const_index is None:
        size = spec.type.size_bytes
        return None, (pool.dropped(size) if size else [], size)
    return spec, ([], 0)


def _written(program: Program) -> list[int]:
    """The results that a replay writes: not what it only passes on."""
    return [
        number
        for number, spec in enumerate(program.results)
        if spec.const_index is None
        and (spec.input_index is None or spec.input_index in program.donated)
    ]


def _label(dispatches: Sequence[Dispatch]) -> str:
    """What errors call the work: its first launches and their number."""
    names = [dispatch.label or dispatch.kernel.name for dispatch in dispatches]
    if len(names) > _LABELS_SHOWN:
        return f"[{'; '.join(names[:_LABELS_SHOWN])}; ... {len(names)} launches]"
    return f"[{'; '.join(names)}]"


def _with_open_check(
    parents: tuple[Completion, ...], buffer: DeviceBuffer
) -> tuple[Completion, ...]:
    """`parents` with the check that a buffer depends on, if that is open still."""
    completion = buffer.completion
    if completion is None or not completion.is_suspect:
        buffer.completion = None
    elif completion not in parents:
        return *parents, completion
    return parents
