"""One SPIR-V module: a word list a section, interned types and constants."""

from __future__ import annotations

import sys
from array import array

from poot.core.errors import CapabilityError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.spirv.opcodes import (
    MAGIC_NUMBER,
    AddressingModel,
    Capability,
    Decoration,
    ExecutionMode,
    ExecutionModel,
    FPEncoding,
    MemoryModel,
    Op,
    StorageClass,
)
from poot.lowering.spirv.types import BF16, ScalarType, Type, VectorType

# 1.5 is the last version in which the subgroup size of a pipeline is fixed unless its
# creator asks otherwise; it has all that Vulkan 1.2 promoted.
_VERSION = 0x00010500

# DeviceInfo's flag for each capability that is not always there.
_FEATURES = {
    Capability.Float16: "float16",
    Capability.BFloat16TypeKHR: "bfloat16",
    Capability.Float64: "float64",
    Capability.Int8: "int8",
    Capability.Int16: "int16",
    Capability.Int64: "int64",
    Capability.StorageBuffer8BitAccess: "storage8",
    Capability.StorageBuffer16BitAccess: "storage16",
    Capability.GroupNonUniformArithmetic: "subgroup_arithmetic",
    Capability.GroupNonUniformShuffle: "subgroup_shuffle",
    Capability.GroupNonUniformBallot: "subgroup_ballot",
}
# The extension of SPIR-V that a capability comes with.
_EXTENSIONS = {Capability.BFloat16TypeKHR: "SPV_KHR_bfloat16"}
# Capability for each width that is not always there.
_WIDTHS = {
    (8, False): Capability.Int8,
    (16, False): Capability.Int16,
    (64, False): Capability.Int64,
    (16, True): Capability.Float16,
    (64, True): Capability.Float64,
}


def _text_words(text: str) -> list[int]:
    """A literal string: UTF-8, ended by zero, padded to words."""
    raw = text.encode() + b"\0"
    raw += bytes(-len(raw) % 4)
    return [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]


class _TypeTable(dict[Type, int]):
    """Ids of types; a type is declared at its first use."""

    def __init__(self, module: SpirvModule) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, ty: Type) -> int:
        type_id = self._module.declare(ty)
        self[ty] = type_id
        return type_id


class SpirvModule:
    """Words of one module, kept per section so that emission order never matters."""

    def __init__(self, name: str, info: DeviceInfo) -> None:
        self.name = name
        self.info = info
        self.next_id = 2
        self.entry_label = 1
        self.types = _TypeTable(self)
        self.decorations: list[int] = []
        self.globals: list[int] = []
        # Function-storage variables, then two runs of the entry block: loads of
        # addresses, and what depends on these alone; then everything else.
        self.variables: list[int] = []
        self.addresses: list[int] = []
        self.entry: list[int] = []
        self.body: list[int] = []
        self._capabilities = {
            Capability.Shader,
            Capability.PhysicalStorageBufferAddresses,
        }
        self._interned: dict[tuple[int, ...], int] = {}
        self._interface: list[int] = []
        self._modes: list[tuple[int, ...]] = []
        self._glsl = 0

    def new_id(self) -> int:
        fresh = self.next_id
        self.next_id = fresh + 1
        return fresh

    def require(self, capability: int) -> None:
        """Request a capability, which the device must have."""
        if capability in self._capabilities:
            return
        feature = _FEATURES.get(capability)
        if feature is not None and not getattr(self.info, feature):
            raise CapabilityError(
                f"kernel {self.name}: needs the feature `{feature}`, which "
                f"{self.info.name} lacks; plan another schedule or dtype for it"
            )
        self._capabilities.add(capability)

    def has(self, capability: int) -> bool:
        return capability in self._capabilities

    @property
    def capabilities(self) -> frozenset[int]:
        return frozenset(self._capabilities)

    @property
    def glsl(self) -> int:
        """Id of the instruction set GLSL.std.450, imported at its first use."""
        if not self._glsl:
            self._glsl = self.new_id()
        return self._glsl

    # --- types, constants, variables ----------------------------------------

    def intern(self, op: int, *words: int) -> int:
        """Id of a type that is declared once however often it is asked for."""
        key = (op, *words)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self.new_id()
            self.globals += ((len(words) + 2) << 16 | op, found, *words)
        return found

    def constant(self, op: int, type_id: int, *words: int) -> int:
        """Id of a constant, made once however often it is asked for."""
        key = (op, type_id, *words)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self.new_id()
            self.globals += ((len(words) + 3) << 16 | op, type_id, found, *words)
        return found

    def declare(self, ty: Type) -> int:
        """Declare a value type; `types` calls this once a type."""
        if isinstance(ty, VectorType):
            return self.intern(Op.TypeVector, self.types[ty.scalar], ty.count)
        if ty.is_bool:
            return self.intern(Op.TypeBool)
        if ty is BF16:
            self.require(Capability.BFloat16TypeKHR)
            return self.intern(Op.TypeFloat, ty.bits, FPEncoding.BFloat16KHR)
        capability = _WIDTHS.get((ty.bits, ty.is_float))
        if capability is not None:
            self.require(capability)
        if ty.is_float:
            return self.intern(Op.TypeFloat, ty.bits)
        return self.intern(Op.TypeInt, ty.bits, int(ty.is_signed))

    def pointer_type(self, storage: int, pointee: int) -> int:
        return self.intern(Op.TypePointer, storage, pointee)

    def block(self, member: int, *decorations: int) -> int:
        """A struct around `member` that a pointer into a buffer can lead to."""
        struct = self.new_id()
        self.globals += (3 << 16 | Op.TypeStruct, struct, member)
        self.decorate(struct, Decoration.Block)
        self.member_decorate(struct, 0, Decoration.Offset, 0)
        for decoration in decorations:
            self.member_decorate(struct, 0, decoration)
        return struct

    def array(self, op: int, element: int, *count: int, stride: int = 0) -> int:
        """An array or runtime array; laid out in memory if it has a stride."""
        key = (op, element, *count, stride)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self.new_id()
            self.globals += ((len(count) + 3) << 16 | op, found, element, *count)
            if stride:
                self.decorate(found, Decoration.ArrayStride, stride)
        return found

    def variable(self, storage: int, type_id: int) -> int:
        """A variable outside the function. The entry point lists every one."""
        pointer = self.pointer_type(storage, type_id)
        variable = self.new_id()
        self.globals += (4 << 16 | Op.Variable, pointer, variable, storage)
        self._interface.append(variable)
        return variable

    def builtin(self, builtin: int, ty: Type) -> int:
        """An input variable that carries one of Vulkan's built-in values."""
        variable = self.variable(StorageClass.Input, self.types[ty])
        self.decorate(variable, Decoration.BuiltIn, builtin)
        return variable

    def push_block(self, member: int, count: int) -> int:
        """The push-constant variable: a struct of `count` 8-byte members."""
        struct = self.new_id()
        members = [member] * count
        self.globals += ((count + 2) << 16 | Op.TypeStruct, struct, *members)
        self.decorate(struct, Decoration.Block)
        for index in range(count):
            self.member_decorate(struct, index, Decoration.Offset, 8 * index)
        return self.variable(StorageClass.PushConstant, struct)

    def decorate(self, target: int, decoration: int, *words: int) -> None:
        head = (len(words) + 3) << 16 | Op.Decorate
        self.decorations += (head, target, decoration, *words)

    def member_decorate(self, struct: int, member: int, *words: int) -> None:
        head = (len(words) + 3) << 16 | Op.MemberDecorate
        self.decorations += (head, struct, member, *words)

    # --- the whole ----------------------------------------------------------

    def assemble(self, workgroup: tuple[int, int, int]) -> bytes:
        """The finished module as bytes."""
        void = self.intern(Op.TypeVoid)
        function_type = self.intern(Op.TypeFunction, void)
        main = self.new_id()
        self._modes = [(ExecutionMode.LocalSize, *workgroup)]
        self._control_floats()
        words = [MAGIC_NUMBER, _VERSION, 0, self.next_id, 0]
        words += self._preamble(main)
        words += self.decorations
        words += self.globals
        words += (5 << 16 | Op.Function, void, main, 0, function_type)
        words += (2 << 16 | Op.Label, self.entry_label)
        words += self.variables
        words += self.addresses
        words += self.entry
        words += self.body
        words += (1 << 16 | Op.Return, 1 << 16 | Op.FunctionEnd)
        packed = array("I", words)
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def _preamble(self, main: int) -> list[int]:
        words: list[int] = []
        for capability in sorted(self._capabilities):
            words += (2 << 16 | Op.Capability, capability)
        for capability in sorted(self._capabilities & _EXTENSIONS.keys()):
            name = _text_words(_EXTENSIONS[capability])
            words += ((len(name) + 1) << 16 | Op.Extension, *name)
        if self._glsl:
            name = _text_words("GLSL.std.450")
            words += ((len(name) + 2) << 16 | Op.ExtInstImport, self._glsl, *name)
        words += (
            3 << 16 | Op.MemoryModel,
            AddressingModel.PhysicalStorageBuffer64,
            MemoryModel.GLSL450,
        )
        entry = [ExecutionModel.GLCompute, main, *_text_words("main")]
        entry += self._interface
        words += ((len(entry) + 1) << 16 | Op.EntryPoint, *entry)
        for mode in self._modes:
            words += ((len(mode) + 2) << 16 | Op.ExecutionMode, main, *mode)
        return words

    def _control_floats(self) -> None:
        """Ask for IEEE behaviour at the widths that this module calculates in."""
        info = self.info
        widths = [32]
        if self.has(Capability.Float16):
            widths.append(16)
        if self.has(Capability.Float64):
            widths.append(64)
        preserved = {
            16: info.denorm_preserve16,
            32: info.denorm_preserve32,
            64: info.denorm_preserve64,
        }
        for width in widths:
            if info.signed_zero_inf_nan_preserve:
                self.require(Capability.SignedZeroInfNanPreserve)
                self._modes.append((ExecutionMode.SignedZeroInfNanPreserve, width))
            if preserved[width]:
                self.require(Capability.DenormPreserve)
                self._modes.append((ExecutionMode.DenormPreserve, width))
        if 16 in widths and info.rounding_rte16:
            self.require(Capability.RoundingModeRTE)
            self._modes.append((ExecutionMode.RoundingModeRTE, 16))
        flushes = info.denorm_flush32 and not info.denorm_preserve32
        if flushes and not info.keeps_subnormals32:
            self.require(Capability.DenormFlushToZero)
            self._modes.append((ExecutionMode.DenormFlushToZero, 32))


def constant_bits(ty: ScalarType, bits: int) -> tuple[int, ...]:
    """Literal words of a scalar: low word first, small signed ones sign-extended."""
    if ty.bits == 64:
        return bits & 0xFFFFFFFF, bits >> 32
    if ty.is_signed and ty.bits < 32 and bits >> (ty.bits - 1):
        return (bits | (0xFFFFFFFF << ty.bits & 0xFFFFFFFF),)
    return (bits,)
