"""Memory: buffers by address, workgroup memory, variables. Every access is bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.core.errors import CapabilityError, LimitError, SpirvError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Access, KernelOperand
from poot.lowering.spirv.control import Control
from poot.lowering.spirv.opcodes import (
    Capability,
    Decoration,
    Glsl,
    MemoryAccess,
    Op,
    Scope,
    StorageClass,
)
from poot.lowering.spirv.types import U32, Type, VectorType, unsigned, vector
from poot.lowering.spirv.value import Operand, Size, Value

# Indices of OpAccessChain are signed, so a u32 index must stay below this.
_INDEX_END = 1 << 31
# Elements under 4 bytes can be more than that; then they are indexed in rows of 16.
_ROW_SHIFT = 4
_STORAGE = {
    8: Capability.StorageBuffer8BitAccess,
    16: Capability.StorageBuffer16BitAccess,
}


@dataclass(slots=True, eq=False)
class Pointer:
    """The address of an operand. Loads and stores say the type of its elements."""

    operand: KernelOperand
    # Id of the address, a pointer; defined only if some access needs it.
    base: int
    used: bool = False
    # Pointer ids by element type and whether rows of 16 are indexed.
    views: dict[tuple[Type, bool], int] = field(default_factory=dict)


class Variable:
    """A mutable value of one invocation."""

    __slots__ = ("_id", "_k", "ty")

    def __init__(self, k: Memory, number: int, ty: Type) -> None:
        self._k = k
        self._id = number
        self.ty = ty

    def load(self) -> Value:
        return self._k._emit(Op.Load, self.ty, self._id)

    def store(self, value: Operand) -> None:
        given = self._k.value(value, self.ty)
        if given.ty is not self.ty:
            raise SpirvError(
                f"{self._k.name}: store of {given.ty} into a variable of {self.ty}"
            )
        self._k._run(Op.Store, self._id, given.id)


class Shared:
    """An array in the memory of the workgroup. Indices are bounded by its length."""

    __slots__ = ("_id", "_k", "_pointer_type", "count", "ty")

    def __init__(self, k: Memory, number: int, ty: Type, count: int) -> None:
        self._k = k
        self._id = number
        self._pointer_type = k._module.pointer_type(
            StorageClass.Workgroup, k._types[ty]
        )
        self.ty = ty
        self.count = count

    def load(self, index: Size) -> Value:
        """The element at `index`, or the last one past the end."""
        k = self._k
        inside = k._clamped(k.value(index), k.u32(self.count))
        return k._emit(Op.Load, self.ty, self._element(inside))

    def store(self, index: Size, value: Operand) -> None:
        """Does nothing past the end."""
        k = self._k
        index = k.value(index)
        given = k.value(value, self.ty)
        if given.ty is not self.ty:
            raise SpirvError(
                f"{k.name}: store of {given.ty} into shared memory of {self.ty}"
            )
        with k.when(k.lt(index, self.count)):
            k._run(Op.Store, self._element(index), given.id)

    def atomic_add(self, index: Size, value: Operand) -> Value:
        """Add to an integer of 32 bits for all to see; gives what stood there before.

        The index must be below the length. The order among invocations is open, so
        use only what does not depend on it.
        """
        k = self._k
        index, given = k.value(index), k.value(value, self.ty)
        if self.ty.scalar.bits != 32 or not self.ty.scalar.is_integer:
            raise SpirvError(f"{k.name}: atomic_add on shared memory of {self.ty}")
        if not k._provable(index, k.u32(self.count)):
            raise SpirvError(
                f"{k.name}: atomic_add at an index that is not known to be below "
                f"{self.count}; bound it with k.min or k.and_"
            )
        place = self._element(index)
        scope, relaxed = k.u32(Scope.Workgroup).id, k.u32(0).id
        return k._emit(Op.AtomicIAdd, self.ty, place, scope, relaxed, given.id)

    def _element(self, index: Value) -> int:
        return self._k._emit_id(Op.AccessChain, self._pointer_type, self._id, index.id)


class Memory(Control):
    """Loads and stores. There is no access without a bound."""

    def __init__(
        self, name: str, info: DeviceInfo, workgroup: tuple[int, int, int]
    ) -> None:
        super().__init__(name, info, workgroup)
        self._layouts: dict[tuple[Type, bool, Access], int] = {}
        self._shared_bytes = 0
        self._accesses = 0

    # --- buffers ------------------------------------------------------------

    def address(self, pointer: Pointer) -> Value:
        """The address of an operand as two u32, the low one first."""
        pointer.used = True
        return self._emit(Op.Bitcast, vector(U32, 2), pointer.base)

    def load(self, pointer: Pointer, ty: Type, index: Size, bound: Size) -> Value:
        """Element `index` of an array of `bound` elements; past the end, the last.

        Index and bound count elements of `ty`, which may be a vector of two or four.
        """
        if not pointer.operand.access.reads:
            raise SpirvError(
                f"{self.name}: load from operand {pointer.operand.name}, which is "
                "declared as written only"
            )
        bound = self._bound(pointer, ty, bound)
        index = self._clamped(self._index(index), bound)
        if isinstance(ty, VectorType) and self._by_component(ty, bound):
            parts = [
                self._load_at(pointer, ty.scalar, place, end)
                for place, end in self._components(ty, index, bound)
            ]
            return self._self.construct(ty, *parts)
        return self._load_at(pointer, ty, index, bound)

    def store(
        self, pointer: Pointer, ty: Type, index: Size, value: Operand, bound: Size
    ) -> None:
        """Write element `index` of an array of `bound` elements, if there is one."""
        if not pointer.operand.access.writes:
            raise SpirvError(
                f"{self.name}: store to operand {pointer.operand.name}, which is "
                "declared as read only"
            )
        given = self.value(value, ty)
        if given.ty is not ty:
            raise SpirvError(f"{self.name}: store of {given.ty} as {ty}")
        index, bound = self._index(index), self._bound(pointer, ty, bound)
        with self.when(self.lt(index, bound)):
            if isinstance(ty, VectorType) and self._by_component(ty, bound):
                for i, (place, end) in enumerate(self._components(ty, index, bound)):
                    part = self._self.extract(given, i)
                    self._store_at(pointer, ty.scalar, place, part, end)
            else:
                self._store_at(pointer, ty, index, given, bound)

    def load_small(
        self, pointer: Pointer, bits: int, index: Size, bound: Size
    ) -> Value:
        """The raw bits of an element of 8 or 16 bits, as a u32 below 2**bits.

        Where the device has no storage of that width, out of the word around it.
        """
        if self.has_small(bits):
            small = self.load(pointer, unsigned(bits), index, bound)
            return self._self.convert(small, U32)
        k = self._self
        shift = 2 if bits == 8 else 1
        bound = self._bound(pointer, unsigned(bits), bound)
        index = self._clamped(self._index(index), bound)
        words = k.add(k.shr(self._last(bound), shift), 1)
        if (index.id, bound.id) in self._less:
            at = k.shr(index, shift)
            self._assume(((at.id, words.id, None),))
        word = self.load(pointer, U32, k.shr(index, shift), words)
        lane = k.and_(index, (1 << shift) - 1)
        return k.and_(k.shr(word, k.mul(lane, bits)), (1 << bits) - 1)

    def store_small(
        self, pointer: Pointer, bits: int, index: Size, value: Operand, bound: Size
    ) -> None:
        """Write the low `bits` (8 or 16) bits of a u32 as one element."""
        if not self.has_small(bits):
            raise CapabilityError(
                f"kernel {self.name}: needs `storage{bits}` and `int{bits}` to store "
                f"elements of {bits} bits, which {self.info.name} has not; write whole "
                "words instead"
            )
        small = self._self.convert(self.value(value), unsigned(bits))
        self.store(pointer, unsigned(bits), index, small, bound)

    # Atomics see what other workgroups of the same launch do. They are relaxed: nothing
    # is said of other words, so that each word must tell by itself what it means.

    def atomic_load(self, pointer: Pointer, index: Size, bound: Size) -> Value:
        """Word `index` of `bound` as it is by now; past the end, the last."""
        bound = self._bound(pointer, U32, bound)
        place = self._place(
            pointer, U32, self._clamped(self._index(index), bound), bound
        )
        return self._emit(Op.AtomicLoad, U32, place, *self._relaxed())

    def atomic_store(
        self, pointer: Pointer, index: Size, value: Operand, bound: Size
    ) -> None:
        """Write word `index` of `bound`, if there is one, for all workgroups to see."""
        index, bound = self._index(index), self._bound(pointer, U32, bound)
        given = self.value(value)
        with self.when(self.lt(index, bound)):
            place = self._place(pointer, U32, index, bound)
            self._run(Op.AtomicStore, place, *self._relaxed(), given.id)

    def atomic_add(
        self, pointer: Pointer, index: Size, value: Operand, bound: Size
    ) -> Value:
        """Add to word `index` of `bound`; gives what stood there before."""
        bound = self._bound(pointer, U32, bound)
        place = self._place(
            pointer, U32, self._clamped(self._index(index), bound), bound
        )
        given = self.value(value)
        return self._emit(Op.AtomicIAdd, U32, place, *self._relaxed(), given.id)

    def _relaxed(self) -> tuple[int, int]:
        return self.u32(Scope.Device).id, self.u32(0).id

    def has_small(self, bits: int) -> bool:
        """Whether the device can load and store single elements of 8 or 16 bits."""
        if bits not in _STORAGE:
            raise SpirvError(f"{self.name}: elements of 8 or 16 bits, not {bits}")
        # Validators want arithmetic at the width too before they take its pointers.
        info = self.info
        if bits == 8:
            return info.storage8 and info.int8
        return info.storage16 and info.int16

    def _load_at(self, pointer: Pointer, ty: Type, index: Value, bound: Value) -> Value:
        place = self._place(pointer, ty, index, bound)
        return self._emit(Op.Load, ty, place, MemoryAccess.Aligned, ty.size_bytes)

    def _store_at(
        self, pointer: Pointer, ty: Type, index: Value, value: Value, bound: Value
    ) -> None:
        place = self._place(pointer, ty, index, bound)
        self._run(Op.Store, place, value.id, MemoryAccess.Aligned, ty.size_bytes)

    # CPU drivers turn an access into a loop over the lanes, one for each component of a
    # vector. An address that no other access uses is computed in that loop, on scalars.
    # A shared one is a vector of 64 bytes that each round spills to the stack to read
    # one lane of it: a load then takes four times as long (Mesa 22.3 on AVX-512).

    def _by_component(self, ty: VectorType, bound: Value) -> bool:
        """Whether to access a vector of an array of `bound` one component at a time."""
        most = bound.const or self.info.max_allocation_bytes // ty.size_bytes
        return self.info.is_cpu and most * ty.count <= _INDEX_END

    def _components(
        self, ty: VectorType, index: Value, bound: Value
    ) -> list[tuple[Value, Value]]:
        """Index and bound of each component of a vector, as elements of their own."""
        k = self._self
        first, end = k.mul(index, ty.count), k.mul(bound, ty.count)
        return [(k.add(first, i), end) for i in range(ty.count)]

    def _unshared(self, index: Value) -> Value:
        """On CPU devices, the index by a computation of its own; see above.

        The limit is beyond all indices, which compilers cannot know, and differs from
        access to access.
        """
        if not self.info.is_cpu or index.const is not None:
            return index
        self._accesses += 1
        limit = self.u32((1 << 32) - 1 - self._accesses)
        return self._glsl(Glsl.UMin, U32, index.id, limit.id)

    def _index(self, index: Size) -> Value:
        value = self.value(index)
        if value.ty is not U32:
            raise SpirvError(f"{self.name}: indices and bounds are u32, not {value.ty}")
        return value

    def _bound(self, pointer: Pointer, ty: Type, bound: Size) -> Value:
        value = self._index(bound)
        if value.const == 0:
            raise SpirvError(
                f"{self.name}: access to operand {pointer.operand.name} of 0 elements; "
                "do not plan a kernel for it"
            )
        if value.const and value.const > _INDEX_END and ty.size_bytes > 2:
            raise LimitError(
                f"kernel {self.name}: operand {pointer.operand.name} has {value.const} "
                f"elements of {ty}; the most is {_INDEX_END}. Split it"
            )
        return value

    def _clamped(self, index: Value, bound: Value) -> Value:
        """`index`, or the last one below `bound`."""
        if self._provable(index, bound):
            return index
        k = self._self
        inside = k.min(index, self._last(bound))
        if bound.const is None:
            self._assume(((inside.id, bound.id, None),))
        return inside

    def _last(self, bound: Value) -> Value:
        """bound - 1; a bound of 0 that only the metadata tells must not wrap."""
        k = self._self
        return k.sub(bound if bound.const else k.max(bound, 1), 1)

    def _place(self, pointer: Pointer, ty: Type, index: Value, bound: Value) -> int:
        """Id of a pointer to one element."""
        reach = min(
            self._limits.get(index.id, 1 << 32), self._limits.get(bound.id, 1 << 32)
        )
        rows = ty.size_bytes < 4 and reach > _INDEX_END
        view = self._view(pointer, ty, rows)
        path = [self._unshared(index).id]
        if rows:
            k = self._self
            row = k.shr(index, _ROW_SHIFT)
            path = [row.id, k.and_(index, (1 << _ROW_SHIFT) - 1).id]
        element = self._module.pointer_type(
            StorageClass.PhysicalStorageBuffer, self._types[ty]
        )
        return self._emit_id(Op.AccessChain, element, view, self.u32(0).id, *path)

    def _view(self, pointer: Pointer, ty: Type, rows: bool) -> int:
        """The operand's address as a pointer to an array of `ty`."""
        found = pointer.views.get((ty, rows))
        if found is not None:
            return found
        if ty.scalar.is_bool or ty.count == 3:
            raise SpirvError(
                f"{self.name}: {ty} has no layout in a buffer; load another type"
            )
        if ty.scalar.bits in _STORAGE:
            self._module.require(_STORAGE[ty.scalar.bits])
        pointer.used = True
        pointee = self._layout(ty, rows, pointer.operand.access)
        kind = self._module.pointer_type(StorageClass.PhysicalStorageBuffer, pointee)
        number = self._module.new_id()
        self._module.entry += (4 << 16 | Op.Bitcast, kind, number, pointer.base)
        pointer.views[ty, rows] = number
        return number

    def _layout(self, ty: Type, rows: bool, access: Access) -> int:
        """The block that holds an array of `ty`, accessed in this way."""
        key = (ty, rows, access)
        found = self._layouts.get(key)
        if found is None:
            module, element, stride = self._module, self._types[ty], ty.size_bytes
            if rows:
                length = self.u32(1 << _ROW_SHIFT).id
                element = module.array(Op.TypeArray, element, length, stride=stride)
                stride <<= _ROW_SHIFT
            array = module.array(Op.TypeRuntimeArray, element, stride=stride)
            decorations = {
                Access.READ: (Decoration.NonWritable,),
                Access.WRITE: (Decoration.NonReadable,),
                Access.UPDATE: (),
            }
            found = module.block(array, *decorations[access])
            self._layouts[key] = found
        return found

    # --- other storage ------------------------------------------------------

    def variable(self, ty: Type, initial: Operand | None = None) -> Variable:
        """A mutable value; undefined until its first store if nothing is given."""
        module = self._module
        pointer = module.pointer_type(StorageClass.Function, self._types[ty])
        number = module.new_id()
        module.variables += (4 << 16 | Op.Variable, pointer, number)
        module.variables.append(StorageClass.Function)
        made = Variable(self, number, ty)
        if initial is not None:
            made.store(initial)
        return made

    def shared(self, ty: Type, count: int) -> Shared:
        """An array of workgroup memory, undefined at first."""
        if ty.scalar.is_bool or count < 1:
            raise SpirvError(f"{self.name}: shared memory of {count} {ty}")
        stride = ty.size_bytes if ty.count != 3 else 4 * ty.scalar.size_bytes
        self._shared_bytes += stride * count
        if self._shared_bytes > self.info.max_shared_bytes:
            raise LimitError(
                f"kernel {self.name}: needs {self._shared_bytes} B of shared memory; "
                f"{self.info.name} has {self.info.max_shared_bytes}. Plan smaller tiles"
            )
        array = self._module.array(Op.TypeArray, self._types[ty], self.u32(count).id)
        number = self._module.variable(StorageClass.Workgroup, array)
        return Shared(self, number, ty, count)
