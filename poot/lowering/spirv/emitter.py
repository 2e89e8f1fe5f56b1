"""The ground of the builder: emission, constants, and what is known about values."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from poot.core.errors import LimitError, SpirvError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.spirv.module import SpirvModule, constant_bits
from poot.lowering.spirv.opcodes import Op
from poot.lowering.spirv.types import BOOL, F32, I32, U32, ScalarType, Type
from poot.lowering.spirv.value import Condition, Operand, Value

if TYPE_CHECKING:
    from poot.lowering.spirv.arithmetic import Arithmetic

# (a, b, limit): a < b (b = 0: says nothing), and a < limit (None: says nothing).
Fact = tuple[int, int, int | None]

_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


class _Scope:
    """What must be forgotten at the end of a block."""

    __slots__ = ("limits", "pairs", "trail")

    def __init__(self, trail: int) -> None:
        self.trail = trail
        self.limits: list[tuple[int, int | None]] = []
        self.pairs: list[tuple[int, int]] = []


class Emitter:
    """Appends instructions; equal pure ones in reach are emitted once."""

    def __init__(
        self, name: str, info: DeviceInfo, workgroup: tuple[int, int, int]
    ) -> None:
        self.name = name
        self.info = info
        self.workgroup = workgroup
        _check_workgroup(name, info, workgroup)
        # The builder as its Values see it: with all its instructions.
        self._self = cast("Arithmetic", self)
        self._module = SpirvModule(name, info)
        self._types = self._module.types
        self._code = self._module.body
        self._label = self._module.entry_label
        # Pure instructions whose results may be used here, and in order of emission.
        self._known: dict[tuple[int, Type, tuple[int, ...]], Value] = {}
        self._trail: list[tuple[int, Type, tuple[int, ...]]] = []
        self._entry_known = self._known.copy()
        self._scopes = [_Scope(0)]
        self._constants: dict[tuple[Type, int], Value] = {}
        # The same by the Python number; not of zeros, since -0.0 == 0.0.
        self._numbers: dict[tuple[Type, float], Value] = {}
        self._limits: dict[int, int] = {}
        # Facts that a condition implies where it is true, and where it is false.
        self._implied: dict[int, tuple[tuple[Fact, ...], tuple[Fact, ...]]] = {}
        self._less: set[tuple[int, int]] = set()

    # --- instructions -------------------------------------------------------

    def _pure(self, op: int, ty: Type, *ids: int) -> Value:
        """The value of an instruction that depends on nothing but its operands."""
        key = (op, ty, ids)
        found = self._known.get(key)
        if found is not None:
            return found
        value = self._emit(op, ty, *ids)
        self._known[key] = value
        self._trail.append(key)
        return value

    def _emit(self, op: int, ty: Type, *ids: int) -> Value:
        module = self._module
        number = module.next_id
        module.next_id = number + 1
        head = (len(ids) + 3) << 16 | op
        self._code.extend((head, self._types[ty], number, *ids))
        return Value(self._self, number, ty)

    def _emit_id(self, op: int, type_id: int, *ids: int) -> int:
        """Like `_emit`, for results that are no values: pointers and structs."""
        number = self._module.new_id()
        self._code.extend(((len(ids) + 3) << 16 | op, type_id, number, *ids))
        return number

    def _run(self, op: int, *words: int) -> None:
        """An instruction without a result."""
        self._code.extend(((len(words) + 1) << 16 | op, *words))

    def _glsl(self, instruction: int, ty: Type, *ids: int) -> Value:
        return self._pure(Op.ExtInst, ty, self._module.glsl, instruction, *ids)

    @contextmanager
    def _at_entry(self) -> Iterator[None]:
        """Emit into the entry block: the results can be used anywhere."""
        here = self._code, self._known, self._trail
        self._code, self._known, self._trail = self._module.entry, self._entry_known, []
        try:
            yield
        finally:
            self._code, self._known, self._trail = here

    # --- constants ----------------------------------------------------------

    def bits(self, ty: ScalarType, bits: int) -> Value:
        """The constant of these bits: NaNs and signed zeros stay as they are."""
        if not 0 <= bits < 1 << ty.bits:
            raise SpirvError(f"{self.name}: {bits:#x} does not fit {ty}")
        key = (ty, bits)
        found = self._constants.get(key)
        if found is not None:
            return found
        if ty.is_bool:
            op = Op.ConstantTrue if bits else Op.ConstantFalse
            number = self._module.constant(op, self._types[ty])
        else:
            words = constant_bits(ty, bits)
            number = self._module.constant(Op.Constant, self._types[ty], *words)
        value = Value(self._self, number, ty, _integer(ty, bits))
        if ty is U32:
            self._limits[number] = bits + 1
        self._constants[key] = value
        return value

    def const(self, ty: Type, number: float) -> Value:
        """The constant nearest to `number`; of a vector type, in every component."""
        found = self._numbers.get((ty, number)) if number else None
        if found is None:
            found = self._make_constant(ty, number)
            if number:
                self._numbers[ty, number] = found
        return found

    def _make_constant(self, ty: Type, number: float) -> Value:
        scalar = ty.scalar
        value = self.bits(scalar, self._bits_of(scalar, number))
        if ty is scalar:
            return value
        key = (ty, value.id)
        found = self._constants.get(key)
        if found is None:
            parts = (value.id,) * ty.count
            made = self._module.constant(Op.ConstantComposite, self._types[ty], *parts)
            found = self._constants[key] = Value(self._self, made, ty)
        return found

    def _bits_of(self, ty: ScalarType, number: float) -> int:
        if ty.is_float:
            return _float_bits(ty.bits, float(number))
        if not isinstance(number, int):
            raise SpirvError(f"{self.name}: {number!r} is no constant of type {ty}")
        if not -(1 << ty.bits) // 2 <= number < 1 << ty.bits:
            raise SpirvError(f"{self.name}: {number} does not fit {ty}")
        return number & ((1 << ty.bits) - 1)

    def u32(self, number: int) -> Value:
        return self.const(U32, number)

    def i32(self, number: int) -> Value:
        return self.const(I32, number)

    def f32(self, number: float) -> Value:
        return self.const(F32, number)

    def bool_(self, truth: bool) -> Value:
        return self.bits(BOOL, int(truth))

    def value(self, number: Operand, ty: Type = U32) -> Value:
        """`number` as a Value: a Python number becomes a constant of `ty`."""
        return number if isinstance(number, Value) else self.const(ty, number)

    def condition(self, truth: Condition) -> Value:
        """`truth` as a Value of type bool."""
        if not isinstance(truth, Value):
            return self.bool_(truth)
        if truth.ty is not BOOL:
            raise SpirvError(f"{self.name}: a condition must be bool, not {truth.ty}")
        return truth

    # --- what is known ------------------------------------------------------

    def limit(self, value: Value) -> int | None:
        """Exclusive upper bound of a u32, as known at this point of the kernel."""
        return self._limits.get(value.id)

    def assume_below(self, value: Value, limit: int) -> Value:
        """Declare that a u32 is below `limit`; a wrong word here is a wrong address."""
        known = self._limits.get(value.id)
        if known is None or limit < known:
            self._scopes[-1].limits.append((value.id, known))
            self._limits[value.id] = limit
        return value

    def _below(self, value: Value, fresh: int, limit: int | None) -> Value:
        """Note the bound of a result, if the instruction was not known before."""
        if limit is not None and value.id >= fresh and limit <= 1 << 32:
            self._limits[value.id] = limit
        return value

    def _assume(self, facts: tuple[Fact, ...]) -> None:
        """Take facts as true until the current block ends."""
        scope = self._scopes[-1]
        for number, other, limit in facts:
            if other and (number, other) not in self._less:
                self._less.add((number, other))
                scope.pairs.append((number, other))
            known = self._limits.get(number)
            if limit is not None and (known is None or limit < known):
                scope.limits.append((number, known))
                self._limits[number] = limit

    def _provable(self, index: Value, bound: Value, strict: bool = True) -> bool:
        """Whether index < bound, or <= unless strict, is known to hold here."""
        if (index.id, bound.id) in self._less:
            return True
        limit = self._limits.get(index.id)
        if limit is None or bound.const is None:
            return False
        return limit - (not strict) <= bound.const

    def _open_scope(self) -> None:
        self._scopes.append(_Scope(len(self._trail)))

    def _close_scope(self) -> None:
        scope = self._scopes.pop()
        for key in self._trail[scope.trail :]:
            del self._known[key]
        del self._trail[scope.trail :]
        self._less.difference_update(scope.pairs)
        for number, limit in reversed(scope.limits):
            if limit is None:
                del self._limits[number]
            else:
                self._limits[number] = limit

    def _start_block(self, label: int) -> None:
        self._code.extend((2 << 16 | Op.Label, label))
        self._label = label


def _integer(ty: ScalarType, bits: int) -> int | None:
    if ty.is_float:
        return None
    if ty.is_bool:
        return bool(bits)
    return bits - (1 << ty.bits) if ty.is_signed and bits >> ty.bits - 1 else bits


def _float_bits(width: int, number: float) -> int:
    """Bits of `number`, rounded to nearest even; beyond the largest is infinity."""
    try:
        raw = struct.pack(_FLOAT_FORMATS[width], number)
    except OverflowError:
        raw = struct.pack(_FLOAT_FORMATS[width], math.copysign(math.inf, number))
    return int.from_bytes(raw, "little")


def _check_workgroup(
    name: str, info: DeviceInfo, workgroup: tuple[int, int, int]
) -> None:
    for axis, (size, limit) in enumerate(
        zip(workgroup, info.max_workgroup_size, strict=True)
    ):
        if not 1 <= size <= limit:
            raise LimitError(
                f"kernel {name}: workgroup size {size} along axis {axis}; "
                f"{info.name} takes 1 to {limit}. Plan a smaller workgroup"
            )
    invocations = math.prod(workgroup)
    if invocations > info.max_workgroup_invocations:
        raise LimitError(
            f"kernel {name}: a workgroup of {invocations} invocations; {info.name} "
            f"takes {info.max_workgroup_invocations}. Plan a smaller workgroup"
        )
