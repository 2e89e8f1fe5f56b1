"""KernelBuilder: what kernels are written with. `finish` gives the Kernel."""

from __future__ import annotations

from poot.core.errors import LimitError, SpirvError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Access, Kernel, KernelOperand
from poot.lowering.spirv.control import Loop, When
from poot.lowering.spirv.memory import Pointer, Shared, Variable
from poot.lowering.spirv.opcodes import Decoration, MemoryAccess, Op, StorageClass
from poot.lowering.spirv.types import U32
from poot.lowering.spirv.value import Condition, Operand, Size, Value
from poot.lowering.spirv.workgroup import Workgroup

__all__ = [
    "Condition",
    "KernelBuilder",
    "Loop",
    "Operand",
    "Pointer",
    "Shared",
    "Size",
    "Value",
    "Variable",
    "When",
]

_ADDRESS_BYTES = 8


class KernelBuilder(Workgroup):
    """Builds one compute kernel by the ABI of `Kernel`."""

    def __init__(
        self,
        name: str,
        info: DeviceInfo,
        workgroup: tuple[int, int, int] = (64, 1, 1),
    ) -> None:
        super().__init__(name, info, workgroup)
        self._operands: list[Pointer] = []
        self._metadata: Pointer | None = None
        self._metadata_words: dict[int, Value] = {}
        # Ids of the types of an address and of a table of them, once needed.
        self._address = self._table = 0
        self._finished = False

    # --- what the kernel is given -------------------------------------------

    def operand(self, name: str, access: Access, *, indirect: bool = False) -> Pointer:
        """Declare the next operand."""
        operand = KernelOperand(name, access, indirect)
        pointer = Pointer(operand, self._module.new_id())
        self._operands.append(pointer)
        return pointer

    def metadata(self, word: int, *, limit: int | None = None) -> Value:
        """Word `word` of the metadata that the dispatch carries, a u32.

        `limit` promises that it is below that, at every dispatch.
        """
        if word < 0:
            raise SpirvError(f"{self.name}: metadata word {word}")
        found = self._metadata_words.get(word)
        if found is None:
            if self._metadata is None:
                operand = KernelOperand("metadata", Access.READ)
                self._metadata = Pointer(operand, self._module.new_id())
            with self._at_entry():
                found = self._entry_word(self._metadata, word)
            self._metadata_words[word] = found
        known = self._limits.get(found.id)
        if limit is not None and (known is None or limit < known):
            self._limits[found.id] = limit
        return found

    def _entry_word(self, pointer: Pointer, word: int) -> Value:
        place = self._place(pointer, U32, self.u32(word), self.u32(word + 1))
        return self._emit(Op.Load, U32, place, MemoryAccess.Aligned, 4)

    @property
    def metadata_words(self) -> int:
        """How many metadata words a dispatch must carry."""
        return max(self._metadata_words, default=-1) + 1

    # --- the finished kernel ------------------------------------------------

    def finish(self, schedule: str = "") -> Kernel:
        """The kernel; the builder is of no use after it."""
        if self._finished or len(self._scopes) != 1:
            raise SpirvError(
                f"{self.name}: finish inside an open block, or for the second time"
            )
        self._finished = True
        most = self.info.max_loop_trips
        if most is not None and self.loop_trips > most:
            raise LimitError(
                f"kernel {self.name}: an invocation may run {self.loop_trips} loop "
                f"iterations; {self.info.name} ends it after {most}. Split the work"
            )
        wide = self._load_addresses()
        return Kernel(
            name=self.name,
            words=self._module.assemble(self.workgroup),
            workgroup=self.workgroup,
            operands=tuple(pointer.operand for pointer in self._operands),
            uses_metadata=self._metadata is not None,
            wide=wide,
            loop_trips=self.loop_trips,
            shared_bytes=self._shared_bytes,
            schedule=schedule,
        )

    def _load_addresses(self) -> bool:
        """Emit the loads of the addresses used; say whether they lie in a block."""
        pointers = list(self._operands)
        if self._metadata is not None:
            pointers.insert(0, self._metadata)
        if not pointers:
            return False
        wide = _ADDRESS_BYTES * len(pointers) > self.info.max_push_bytes
        self._code = self._module.addresses
        address = self._address_type()
        block = self._module.push_block(address, 1 if wide else len(pointers))
        table = self._push_address(block, 0) if wide else 0
        for number, pointer in enumerate(pointers):
            if not pointer.used:
                continue
            target = self._module.new_id() if pointer.operand.indirect else pointer.base
            if wide:
                self._load_address(table, number, target)
            else:
                self._push_address(block, number, target)
            if pointer.operand.indirect:
                self._load_address(target, 0, pointer.base)
        return wide

    def _address_type(self) -> int:
        """A pointer, so that no module needs 64-bit integers for its addresses.

        Nor would two u32, but lavapipe would not see that all lanes share the address.
        """
        if not self._address:
            word = self._module.block(self._types[U32])
            storage = StorageClass.PhysicalStorageBuffer
            self._address = self._module.pointer_type(storage, word)
        return self._address

    def _table_type(self) -> int:
        """A block of addresses."""
        if not self._table:
            module, address = self._module, self._address_type()
            many = module.array(Op.TypeRuntimeArray, address, stride=_ADDRESS_BYTES)
            self._table = module.block(many, Decoration.NonWritable)
        return self._table

    def _push_address(self, block: int, member: int, target: int = 0) -> int:
        """Load an address from the push constants, as the id `target` if given."""
        module = self._module
        address = self._address_type()
        kind = module.pointer_type(StorageClass.PushConstant, address)
        place = self._emit_id(Op.AccessChain, kind, block, self.u32(member).id)
        target = target or module.new_id()
        self._code += (4 << 16 | Op.Load, address, target, place)
        return target

    def _load_address(self, table: int, entry: int, target: int) -> None:
        """Load the address that stands in entry `entry` of the addresses at `table`."""
        module = self._module
        address, layout = self._address_type(), self._table_type()
        storage = StorageClass.PhysicalStorageBuffer
        array = self._emit_id(Op.Bitcast, module.pointer_type(storage, layout), table)
        kind = module.pointer_type(storage, address)
        path = self.u32(0).id, self.u32(entry).id
        place = self._emit_id(Op.AccessChain, kind, array, *path)
        aligned = MemoryAccess.Aligned, _ADDRESS_BYTES
        self._code += (6 << 16 | Op.Load, address, target, place, *aligned)
