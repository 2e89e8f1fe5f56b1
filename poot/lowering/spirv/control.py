"""Structured control flow: branches and bounded loops."""

from __future__ import annotations

from types import TracebackType

from poot.core.errors import LimitError, SpirvError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.spirv.arithmetic import Arithmetic
from poot.lowering.spirv.opcodes import LoopControl, Op
from poot.lowering.spirv.types import U32
from poot.lowering.spirv.value import Condition, Size, Value


class Control(Arithmetic):
    """Opens and closes blocks. Values of a block are out of reach after it."""

    def __init__(
        self, name: str, info: DeviceInfo, workgroup: tuple[int, int, int]
    ) -> None:
        super().__init__(name, info, workgroup)
        self._loops: list[Loop] = []
        # Worst-case rounds of the loops closed so far in the current block; the round
        # in which a loop ends counts too (measured on lavapipe).
        self._rounds = 0

    @property
    def loop_trips(self) -> int:
        """Worst-case iterations of the loops closed so far, as devices count them.

        A loop of n costs n, and one more round that finds its end unless it is last.
        """
        return max(self._rounds - 1, 0)

    def when(self, condition: Condition) -> When:
        """A block that runs where the condition holds.

        Inside, the builder knows what the condition says about u32 values.
        """
        return When(self, self.condition(condition))

    def loop(
        self,
        bound: Size,
        start: Size = 0,
        step: Size = 1,
        *,
        max_trips: int | None = None,
        unroll: bool | None = None,
    ) -> Loop:
        """A block that runs for i = start, start + step, … while i < bound.

        `max_trips` is the most iterations there can be; needed where bound and step do
        not tell. Bound + step must not exceed 2**32. `unroll` is a hint.
        """
        return Loop(self, bound, start, step, max_trips, unroll)

    def break_if(self, condition: Condition) -> None:
        """Leave the innermost loop where the condition holds."""
        if not self._loops:
            raise SpirvError(f"{self.name}: break_if outside a loop")
        leave = self.condition(condition)
        if leave.const is not None and not leave.const:
            return
        go_on = self._module.new_id()
        self._run(Op.SelectionMerge, go_on, 0)
        self._run(Op.BranchConditional, leave.id, self._loops[-1].merge, go_on)
        self._start_block(go_on)
        self._assume(self._facts(leave)[1])


class When:
    """A conditional block; `otherwise` opens the block for the other case."""

    __slots__ = ("_condition", "_end", "_k", "_merge", "_target")

    def __init__(self, k: Control, condition: Value) -> None:
        self._k = k
        self._condition = condition
        self._merge = 0
        self._target = 0
        self._end = -1

    @property
    def _always(self) -> bool:
        return self._condition.const == 1

    def __enter__(self) -> When:
        k = self._k
        if not self._always:
            self._merge, inside = k._module.new_id(), k._module.new_id()
            k._run(Op.SelectionMerge, self._merge, 0)
            k._run(Op.BranchConditional, self._condition.id, inside, self._merge)
            self._target = len(k._code) - 1
            k._start_block(inside)
        k._open_scope()
        k._assume(k._facts(self._condition)[0])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        k = self._k
        k._close_scope()
        if not self._always:
            k._run(Op.Branch, self._merge)
            k._start_block(self._merge)
        self._end = len(k._code)

    def otherwise(self) -> Otherwise:
        """The block for where the condition does not hold; directly after this one."""
        return Otherwise(self)

    def _open_other(self) -> None:
        k = self._k
        if self._end != len(k._code):
            raise SpirvError(
                f"{k.name}: `otherwise` must follow its `when` directly and only once"
            )
        if self._always:
            # The block must stand somewhere, but is never run.
            self._condition = k.bool_(False)
            self.__enter__()
            return
        del k._code[-2:]
        other = k._module.new_id()
        k._code[self._target] = other
        k._start_block(other)
        k._open_scope()
        k._assume(k._facts(self._condition)[1])

    def _close_other(self) -> None:
        self.__exit__(None, None, None)
        self._end = -1


class Otherwise:
    """The second block of a `when`."""

    __slots__ = ("_branch",)

    def __init__(self, branch: When) -> None:
        self._branch = branch

    def __enter__(self) -> None:
        self._branch._open_other()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._branch._close_other()


class Loop:
    """A bounded loop; entering it gives the index, a u32."""

    __slots__ = (
        "_bound",
        "_control",
        "_head",
        "_k",
        "_label",
        "_last",
        "_next",
        "_outer_rounds",
        "_start",
        "_step",
        "index",
        "merge",
        "trips",
    )

    def __init__(
        self,
        k: Control,
        bound: Size,
        start: Size,
        step: Size,
        max_trips: int | None,
        unroll: bool | None,
    ) -> None:
        self._k = k
        self._bound, self._start = k.value(bound), k.value(start)
        self._step = k.value(step)
        for value in (self._bound, self._start, self._step):
            if value.ty is not U32:
                raise SpirvError(f"{k.name}: loop over {value.ty}; it takes u32")
        self.trips = self._count(max_trips)
        hints = {None: 0, True: LoopControl.Unroll, False: LoopControl.DontUnroll}
        self._control = hints[unroll]
        self._outer_rounds = 0

    def _count(self, declared: int | None) -> int:
        """Worst-case iterations."""
        k, step = self._k, self._step.const or 1
        if self._step.const == 0:
            raise SpirvError(f"{k.name}: loop with step 0")
        reach = k.limit(self._bound)
        if reach is not None and reach - 1 + step > 1 << 32:
            raise LimitError(
                f"kernel {k.name}: loop to {reach - 1} by {step} passes 2**32"
            )
        if reach is None and declared is None:
            raise SpirvError(
                f"{k.name}: a loop whose bound is known only when the kernel runs "
                "needs max_trips"
            )
        counts = [] if declared is None else [declared]
        if reach is not None:
            counts.append(self._most(reach - 1, step))
        return min(counts)

    def _most(self, bound: int, step: int) -> int:
        """Iterations if the bound is as large as it can be."""
        span = max(bound - (self._start.const or 0), 0)
        return -(-span // step)

    def __enter__(self) -> Value:
        k = self._k
        module = k._module
        body, index_id = module.new_id(), module.new_id()
        self._head = head = module.new_id()
        self._label, self.merge, self._next = (module.new_id() for _ in range(3))
        before = k._label
        k._run(Op.Branch, head)
        k._start_block(head)
        u32 = k._types[U32]
        k._run(Op.Phi, u32, index_id, self._start.id, before, self._next, self._label)
        self.index = Value(k, index_id, U32)
        k._open_scope()
        inside = k._compare("lt", self.index, self._bound)
        k._run(Op.LoopMerge, self.merge, self._label, self._control)
        k._run(Op.BranchConditional, inside.id, body, self.merge)
        k._start_block(body)
        k._assume(((index_id, self._bound.id, self._reach()),))
        k._loops.append(self)
        self._outer_rounds, k._rounds = k._rounds, 0
        return self.index

    def _reach(self) -> int | None:
        """Exclusive limit of the index."""
        limit = self._k.limit(self._bound)
        if limit is None:
            return None
        bound, start, step = limit - 1, self._start.const, self._step.const
        if start is None or step is None:
            return max(bound, 1)
        return start + max(self._most(bound, step) - 1, 0) * step + 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        k = self._k
        k._loops.pop()
        k._close_scope()
        k._run(Op.Branch, self._label)
        k._start_block(self._label)
        u32 = k._types[U32]
        k._run(Op.IAdd, u32, self._next, self.index.id, self._step.id)
        k._run(Op.Branch, self._head)
        k._start_block(self.merge)
        k._rounds = self._outer_rounds + self.trips * (1 + k._rounds) + 1
