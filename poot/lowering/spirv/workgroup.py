"""What the invocations of a workgroup share: numbers, barriers, subgroup operations."""

from __future__ import annotations

import functools
import math

from poot.core.errors import SpirvError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.spirv.memory import Memory
from poot.lowering.spirv.opcodes import (
    BuiltIn,
    Capability,
    GroupOperation,
    MemorySemantics,
    Op,
    Scope,
)
from poot.lowering.spirv.types import U32, Type, vector
from poot.lowering.spirv.value import Condition, Size, Value

# Opcodes for unsigned, signed and float operands.
_REDUCE = {
    "add": (
        Op.GroupNonUniformIAdd,
        Op.GroupNonUniformIAdd,
        Op.GroupNonUniformFAdd,
    ),
    "mul": (
        Op.GroupNonUniformIMul,
        Op.GroupNonUniformIMul,
        Op.GroupNonUniformFMul,
    ),
    "min": (Op.GroupNonUniformUMin, Op.GroupNonUniformSMin),
    "max": (Op.GroupNonUniformUMax, Op.GroupNonUniformSMax),
    "and": (Op.GroupNonUniformBitwiseAnd, Op.GroupNonUniformBitwiseAnd),
    "or": (Op.GroupNonUniformBitwiseOr, Op.GroupNonUniformBitwiseOr),
    "xor": (Op.GroupNonUniformBitwiseXor, Op.GroupNonUniformBitwiseXor),
}


class Workgroup(Memory):
    """Numbers of invocations and what they do together."""

    def __init__(
        self, name: str, info: DeviceInfo, workgroup: tuple[int, int, int]
    ) -> None:
        super().__init__(name, info, workgroup)
        self._builtins: dict[int, Value] = {}

    # --- numbers ------------------------------------------------------------

    @property
    def workgroup_count(self) -> int:
        """Invocations of a workgroup."""
        return math.prod(self.workgroup)

    @property
    def subgroup_size(self) -> int:
        return self.info.subgroup_size

    @property
    def subgroup_count(self) -> int:
        """Subgroups of a workgroup, all full but perhaps the last."""
        return -(-self.workgroup_count // self.subgroup_size)

    def workgroup_index(self) -> Value:
        """The number of the workgroup in the folded grid; may lie past the end."""
        three = vector(U32, 3)
        group = self._builtin(BuiltIn.WorkgroupId, three, None)
        grid = self._builtin(BuiltIn.NumWorkgroups, three, None)
        with self._at_entry():
            x, y, z = (self.extract(group, axis) for axis in range(3))
            row = z * self.extract(grid, 1) + y
            return row * self.extract(grid, 0) + x

    def local_index(self) -> Value:
        """The number of the invocation in its workgroup."""
        return self._builtin(BuiltIn.LocalInvocationIndex, U32, self.workgroup_count)

    def local_id(self, axis: int) -> Value:
        """The place of the invocation along one axis of its workgroup."""
        place = self._builtin(BuiltIn.LocalInvocationId, vector(U32, 3), None)
        with self._at_entry():
            component = self.extract(place, axis)
        if self._limits.get(component.id) is None:
            self._limits[component.id] = self.workgroup[axis]
        return component

    def subgroup_lane(self) -> Value:
        """The number of the invocation in its subgroup."""
        self._module.require(Capability.GroupNonUniform)
        lane = BuiltIn.SubgroupLocalInvocationId
        return self._builtin(lane, U32, self.subgroup_size)

    def subgroup_index(self) -> Value:
        """The number of the subgroup in its workgroup."""
        self._module.require(Capability.GroupNonUniform)
        return self._builtin(BuiltIn.SubgroupId, U32, self.subgroup_count)

    def _builtin(self, builtin: int, ty: Type, limit: int | None) -> Value:
        found = self._builtins.get(builtin)
        if found is None:
            variable = self._module.builtin(builtin, ty)
            with self._at_entry():
                found = self._emit(Op.Load, ty, variable)
            if limit is not None:
                self._limits[found.id] = limit
            self._builtins[builtin] = found
        return found

    # --- working together ---------------------------------------------------

    def barrier(self, *, buffers: bool = False) -> None:
        """Wait for the whole workgroup; what it wrote to shared memory is seen after.

        With `buffers`, what it wrote to buffers too. All invocations of the workgroup
        must get here: the conditions and bounds around it must be equal in all.
        """
        semantics = MemorySemantics.AcquireRelease | MemorySemantics.WorkgroupMemory
        if buffers:
            semantics |= MemorySemantics.UniformMemory
        scope = self.u32(Scope.Workgroup).id
        self._run(Op.ControlBarrier, scope, scope, self.u32(semantics).id)

    def subgroup_barrier(self) -> None:
        """Wait for the subgroup; what it wrote to shared memory is seen after.

        All invocations of the workgroup must get here, as for `barrier`, since some
        drivers wait for the whole workgroup.
        """
        semantics = MemorySemantics.AcquireRelease | MemorySemantics.WorkgroupMemory
        self._module.require(Capability.GroupNonUniform)
        scope = self.u32(Scope.Subgroup).id
        self._run(Op.ControlBarrier, scope, scope, self.u32(semantics).id)

    def subgroup_reduce(self, op: str, value: Value) -> Value:
        """The combination over the active lanes, given to each of them.

        Floats take "add" and "mul", in an order that the driver chooses; for their
        smallest and largest use integers or shuffles, since NaN is left open.
        """
        self._need_lanes("subgroup_reduce", value)
        scalar = value.ty.scalar
        kinds = _REDUCE[op]
        kind = 2 if scalar.is_float else int(scalar.is_signed)
        if kind >= len(kinds):
            raise self._refuse(f"subgroup_reduce {op}", value.ty, "integers")
        self._module.require(Capability.GroupNonUniformArithmetic)
        return self._group(kinds[kind], value.ty, GroupOperation.Reduce, value.id)

    def subgroup_shuffle_xor(self, value: Value, mask: Size) -> Value:
        """The value of the lane whose number differs from this one's by `mask`."""
        self._need_lanes("subgroup_shuffle_xor", value)
        self._module.require(Capability.GroupNonUniformShuffle)
        at = self.value(mask).id
        return self._group(Op.GroupNonUniformShuffleXor, value.ty, value.id, at)

    def subgroup_shuffle(self, value: Value, lane: Size) -> Value:
        """The value of lane `lane`, which must be active."""
        self._need_lanes("subgroup_shuffle", value)
        self._module.require(Capability.GroupNonUniformShuffle)
        at = self.value(lane).id
        return self._group(Op.GroupNonUniformShuffle, value.ty, value.id, at)

    def subgroup_broadcast(self, value: Value, lane: int) -> Value:
        """The value of one lane, which must be active."""
        self._need_lanes("subgroup_broadcast", value)
        if not 0 <= lane < self.subgroup_size:
            raise SpirvError(
                f"{self.name}: subgroup_broadcast of lane {lane}; a subgroup has "
                f"{self.subgroup_size}"
            )
        self._module.require(Capability.GroupNonUniformBallot)
        at = self.u32(lane).id
        return self._group(Op.GroupNonUniformBroadcast, value.ty, value.id, at)

    def subgroup_ballot(self, condition: Condition) -> list[Value]:
        """In which lanes the condition holds: u32 words, bit i of word w is lane 32w+i.

        There are as many words as the subgroup size needs; inactive lanes have 0.
        """
        self._module.require(Capability.GroupNonUniformBallot)
        truth = self.condition(condition)
        votes = self._group(Op.GroupNonUniformBallot, vector(U32, 4), truth.id)
        words = -(-self.subgroup_size // 32)
        return [self.extract(votes, word) for word in range(words)]

    def subgroup_any(self, condition: Condition) -> Value:
        """Whether the condition holds in some active lane."""
        votes = self.subgroup_ballot(condition)
        return self.ne(functools.reduce(self.or_, votes), 0)

    def subgroup_all(self, condition: Condition) -> Value:
        """Whether the condition holds in every active lane."""
        fails = self.logical_not(self.condition(condition))
        return self.logical_not(self.subgroup_any(fails))

    def _group(self, op: int, ty: Type, *words: int) -> Value:
        self._module.require(Capability.GroupNonUniform)
        return self._emit(op, ty, self.u32(Scope.Subgroup).id, *words)

    def _need_lanes(self, name: str, value: Value) -> None:
        if value.ty.scalar.is_bool or value.ty.scalar.bits < 32:
            raise self._refuse(name, value.ty, "numbers of 32 or 64 bits")
