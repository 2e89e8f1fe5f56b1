"""Kernels of the SPIR-V builder on the device: what the instructions compute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from poot.core.dtypes import as_dtype
from poot.core.errors import SpirvError
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Access,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    Program,
    ResultSpec,
    Space,
)
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import (
    BOOL,
    F32,
    I32,
    U32,
    ScalarType,
    Type,
    vector,
)
from poot.vulkan.device import Device, open_device
from poot.vulkan.executable import Executable

Array = np.ndarray[Any, Any]
WORD = 0xFFFFFFFF
LEAST = -(1 << 31)


@functools.cache
def device() -> Device:
    return open_device()


def run(
    kernel: Kernel,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    metadata: tuple[int, ...] = (),
    grid: tuple[int, int, int] = (1, 1, 1),
) -> list[Array]:
    """Launch once. The operands are `inputs`, then copies of `outputs`, returned."""
    where = device()
    arrays = [np.ascontiguousarray(array) for array in (*inputs, *outputs)]
    types = tuple(TensorType(one.shape, as_dtype(one.dtype)) for one in arrays)
    consts = [
        BufferRange(Space.CONST, number, 0, array.nbytes)
        for number, array in enumerate(arrays)
    ]
    # Only scratch memory has an address that is known and may be written.
    first, offset, scratch = len(inputs), 0, []
    for array in arrays[first:]:
        scratch.append(BufferRange(Space.ARENA, 0, offset, array.nbytes))
        offset += -(-array.nbytes // 64) * 64
    ranges = (*consts[:first], *scratch)
    program = Program(
        (
            *map(Copy, consts[first:], scratch),
            Dispatch(kernel, ranges, grid, metadata, ranges, tuple(scratch)),
            *(
                Copy(span, BufferRange(Space.RESULT, number, 0, span.size))
                for number, span in enumerate(scratch)
            ),
        ),
        (),
        tuple(map(ResultSpec, types[first:])),
        consts=types,
        arena_bytes=offset,
    )
    executable = Executable(where, program, [where.upload(array) for array in arrays])
    buffers, completion = executable.call([])
    completion.wait()
    written = [np.empty_like(output) for output in outputs]
    for out, buffer in zip(written, buffers, strict=True):
        where.download(buffer, out)
    executable.close()
    return written


def make(workgroup: int = 64, **masks: Any) -> KernelBuilder:
    return KernelBuilder("k", device().info.masked(**masks), (workgroup, 1, 1))


Body = Callable[[KernelBuilder, Value, Value], Value]


def pairwise(body: Body, a: Array, b: Array, ty: Type, out: Type) -> Array:
    """body(a[i], b[i]) for every i."""
    k = make()
    left, right = k.operand("a", Access.READ), k.operand("b", Access.READ)
    target = k.operand("out", Access.WRITE)
    i = k.workgroup_index() * 64 + k.local_index()
    with k.when(i < len(a)):
        value = body(k, k.load(left, ty, i, len(a)), k.load(right, ty, i, len(a)))
        if value.ty is BOOL:
            value = k.convert(value, U32)
        k.store(target, out, i, value, len(a))
    dtype = {U32: np.uint32, I32: np.int32, F32: np.float32}[out]  # type: ignore[index]
    blank = np.zeros(len(a), dtype)
    return run(k.finish(), [a, b], [blank], grid=(-(-len(a) // 64), 1, 1))[0]


def cross(*values: float, dtype: Any) -> tuple[Array, Array]:
    """Every pair of values."""
    column = np.array(values).astype(dtype)
    return np.repeat(column, len(column)), np.tile(column, len(column))


# --- integers ---------------------------------------------------------------


def _divide(a: int, b: int) -> tuple[int, int]:
    """Truncated quotient and remainder; 0 by 0."""
    if b == 0:
        return 0, 0
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


INTEGER_CASES: dict[str, tuple[Body, Callable[[int, int], int]]] = {
    "div": (lambda k, a, b: k.div(a, b), lambda a, b: _divide(a, b)[0]),
    "rem": (lambda k, a, b: k.rem(a, b), lambda a, b: _divide(a, b)[1]),
    "mul": (lambda k, a, b: a * b, lambda a, b: a * b),
    "min": (lambda k, a, b: k.min(a, b), min),
    "max": (lambda k, a, b: k.max(a, b), max),
    "lt": (lambda k, a, b: k.select(a < b, a, b), lambda a, b: a if a < b else b),
    "shl": (
        lambda k, a, b: k.shl(a, b),
        lambda a, b: a << (b & WORD) if b & WORD < 32 else 0,
    ),
    "shr": (
        lambda k, a, b: k.shr(a, b),
        lambda a, b: (a & WORD) >> (b & WORD),
    ),
    "sar": (
        lambda k, a, b: k.bitcast(k.sar(k.bitcast(a, I32), k.bitcast(b, I32)), a.ty),
        lambda a, b: (((a & WORD) ^ (1 << 31)) - (1 << 31)) >> (b & WORD),
    ),
    "popcount": (lambda k, a, b: k.popcount(a), lambda a, b: (a & WORD).bit_count()),
    "clz": (lambda k, a, b: k.clz(a), lambda a, b: 32 - (a & WORD).bit_length()),
    "sign_extend": (
        lambda k, a, b: k.bitcast(k.sign_extend(a, 8), a.ty),
        lambda a, b: ((a & 0xFF) ^ 0x80) - 0x80,
    ),
}
NUMBERS = (-7, -1, 0, 1, 3, 7, 31, 32, 33, 100, LEAST, LEAST + 1, (1 << 31) - 1)


@pytest.mark.parametrize("ty", [U32, I32], ids=str)
@pytest.mark.parametrize("name", INTEGER_CASES)
def test_integers(name: str, ty: ScalarType) -> None:
    body, expected = INTEGER_CASES[name]
    a, b = cross(*NUMBERS, dtype=np.int64)
    dtype = np.int32 if ty.is_signed else np.uint32
    left, right = a.astype(dtype), b.astype(dtype)
    found = pairwise(body, left, right, ty, ty)
    wanted = [expected(int(x), int(y)) & WORD for x, y in zip(left, right, strict=True)]
    np.testing.assert_array_equal(found.view(np.uint32), np.array(wanted, np.uint32))


def test_double_width_sums_and_products() -> None:
    a, b = cross(0, 1, 3, 1 << 16, WORD - 1, WORD, dtype=np.uint32)
    product = a.astype(np.uint64) * b.astype(np.uint64)
    for part in range(2):

        def one_word(k: KernelBuilder, x: Value, y: Value, part: int = part) -> Value:
            return k.umul_extended(x, y)[part]

        found = pairwise(one_word, a, b, U32, U32)
        shift = np.uint64(32 * part)
        np.testing.assert_array_equal(found, (product >> shift).astype(np.uint32))
    carry = pairwise(lambda k, x, y: k.add_carry(x, y)[1], a, b, U32, U32)
    total = a.astype(np.uint64) + b.astype(np.uint64)
    np.testing.assert_array_equal(carry, (total >> np.uint64(32)).astype(np.uint32))


# --- floats -----------------------------------------------------------------

FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e-30)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_float_comparisons(name: str) -> None:
    a, b = cross(*FLOATS, dtype=np.float32)
    numpy_name = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"}
    numpy_name |= {"gt": "greater", "ge": "greater_equal"}
    found = pairwise(lambda k, x, y: getattr(k, name)(x, y), a, b, F32, U32)
    wanted = getattr(np, numpy_name[name])(a, b)
    np.testing.assert_array_equal(found.astype(bool), wanted)


def test_nan_and_truth_by_bits() -> None:
    a, b = cross(*FLOATS, 1e-45, dtype=np.float32)
    nans = pairwise(lambda k, x, y: k.is_nan(x), a, b, F32, U32)
    np.testing.assert_array_equal(nans.astype(bool), np.isnan(a))
    truths = pairwise(lambda k, x, y: k.convert(x, BOOL), a, b, F32, U32)
    np.testing.assert_array_equal(truths.astype(bool), a != 0)


def test_products_are_not_contracted() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 4096), dtype=np.float32)
    found = pairwise(lambda k, x, y: x * y + x, a, b, F32, F32)
    np.testing.assert_array_equal(found, a * b + a)


def test_rounding_functions() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6, 1e9], np.float32)
    cases: list[tuple[str, Any]] = [("floor", np.floor), ("ceil", np.ceil)]
    cases += [("trunc", np.trunc), ("round_even", np.rint), ("fabs", np.abs)]
    for name, numpy_function in cases:
        found = pairwise(
            lambda k, x, y, name=name: getattr(k, name)(x), values, values, F32, F32
        )
        wanted = numpy_function(values)
        np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


# --- memory -----------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("bits", [8, 16])
def test_small_elements(bits: int, static: bool, native: bool) -> None:
    """Loads past the end give the last element; stores there do nothing."""
    info = device().info
    if native and not make().has_small(bits):
        pytest.skip(f"{info.name} does not store {bits}-bit elements")
    k = make(storage8=native, storage16=native)
    x, words = k.operand("x", Access.READ), k.operand("words", Access.WRITE)
    small = k.operand("small", Access.WRITE) if native else None
    bound = 77 if static else k.metadata(0)
    i = k.workgroup_index() * 64 + k.local_index()
    k.store(words, U32, i, k.load_small(x, bits, i, bound), 100)
    if small is not None:
        k.store_small(small, bits, i, i * 3 + 1, bound)
    dtype = np.dtype(f"u{bits // 8}")
    source = np.random.default_rng(0).integers(0, 1 << bits, 80).astype(dtype)
    outputs = [np.zeros(128, np.uint32)] + [np.zeros(100, dtype)] * native
    metadata = () if static else (77,)
    found = run(k.finish(), [source], outputs, metadata, grid=(2, 1, 1))
    i_values = np.arange(100)
    np.testing.assert_array_equal(found[0][:100], source[np.minimum(i_values, 76)])
    assert not found[0][100:].any()
    if native:
        np.testing.assert_array_equal(
            found[1], np.where(i_values < 77, i_values * 3 + 1, 0).astype(dtype)
        )


def test_vectors_of_sixteen_bytes() -> None:
    k = make()
    x = k.operand("x", Access.UPDATE)
    four, i = vector(F32, 4), k.local_index()
    k.store(x, four, i, k.load(x, four, i, 20) * 2.0, 20)
    source = np.arange(128, dtype=np.float32)
    (found,) = run(k.finish(), [], [source])
    np.testing.assert_array_equal(found, np.where(source < 80, source * 2, source))


def test_more_operands_than_push_constants() -> None:
    k = make()
    count = device().info.max_push_bytes // 8 + 2
    pointers = [k.operand(f"x{number}", Access.READ) for number in range(count)]
    out, n, i = k.operand("out", Access.WRITE), k.metadata(3), k.local_index()
    total = k.f32(0.0)
    for pointer in pointers:
        total = total + k.load(pointer, F32, i, n)
    k.store(out, F32, i, total, n)
    kernel = k.finish()
    assert kernel.wide
    inputs = [np.full(64, number, np.float32) for number in range(count)]
    blank = np.zeros(64, np.float32)
    (found,) = run(kernel, inputs, [blank], metadata=(0, 0, 0, 60))
    wanted = np.where(np.arange(64) < 60, sum(range(count)), 0)
    np.testing.assert_array_equal(found, wanted)


# --- control flow and workgroups --------------------------------------------


def test_branches_loops_and_breaks() -> None:
    k = make()
    out, lane, result = k.operand("out", Access.WRITE), k.local_index(), k.variable(U32)
    with k.when(lane < 10) as branch:
        result.store(lane * 2)
    with branch.otherwise():
        result.store(0)
        with k.loop(100) as j:
            k.break_if(j >= lane)
            with k.when(k.eq(j % 2, 1)):
                result.store(result.load() + j)
    with k.when(True) as branch:
        result.store(result.load() + 1)
    with branch.otherwise():
        result.store(77)
    with k.when(False) as branch:
        result.store(78)
    with branch.otherwise():
        result.store(result.load() + 1)
    k.store(out, U32, lane, result.load(), 64)
    (found,) = run(k.finish(), [], [np.zeros(64, np.uint32)])
    wanted = [2 * n if n < 10 else sum(range(1, n, 2)) for n in range(64)]
    np.testing.assert_array_equal(found, np.array(wanted) + 2)


def test_sums_through_subgroups_and_shared_memory() -> None:
    """Six workgroups in a folded grid of eight."""
    info: DeviceInfo = device().info
    k = make(128)
    x, out = k.operand("x", Access.READ), k.operand("out", Access.WRITE)
    group, lane = k.workgroup_index(), k.local_index()
    partial = k.variable(F32, 0.0)
    with k.loop(1000, start=lane, step=128) as j:
        element = k.load(x, F32, group * 1000 + j, 6000)
        partial.store(partial.load() + element)
    shared = k.shared(F32, 128)
    shared.store(lane, partial.load())
    slots = 128
    if info.subgroup_arithmetic:
        slots = k.subgroup_count
        reduced = k.subgroup_reduce("add", partial.load())
        k.barrier()
        with k.when(k.eq(k.subgroup_lane(), 0)):
            shared.store(k.subgroup_index(), reduced)
    k.barrier()
    total = k.variable(F32, 0.0)
    with k.loop(slots) as j:
        total.store(total.load() + shared.load(j))
    with k.when(k.eq(lane, 0)):
        k.store(out, F32, group, total.load(), 6)
    source = np.arange(6000, dtype=np.float32) % 17
    blank = np.zeros(8, np.float32)
    (found,) = run(k.finish(), [source], [blank], grid=(2, 2, 2))
    np.testing.assert_array_equal(found[:6], source.reshape(6, 1000).sum(axis=1))
    assert not found[6:].any()


def test_subgroup_exchange() -> None:
    info = device().info
    if not (
        info.subgroup_shuffle and info.subgroup_ballot and info.subgroup_arithmetic
    ):
        pytest.skip(f"{info.name} lacks subgroup operations")
    size = info.subgroup_size
    k = make()
    out, lane = k.operand("out", Access.WRITE), k.subgroup_lane()
    number = k.subgroup_index() * size + lane
    results = [
        k.subgroup_shuffle_xor(number, 3),
        k.subgroup_shuffle(number, size - 1 - lane),
        k.subgroup_broadcast(number, 2),
        k.convert(k.subgroup_any(k.eq(number, size + 1)), U32),
        k.convert(k.subgroup_all(number < size), U32),
        k.bitcast(k.subgroup_reduce("min", k.bitcast(number, I32) - size), U32),
    ]
    for row, value in enumerate(results):
        k.store(out, U32, number + 64 * row, value, 64 * len(results))
    blank = np.zeros((len(results), 64), np.uint32)
    (found,) = run(k.finish(), [], [blank])
    n = np.arange(64)
    first = n // size * size
    np.testing.assert_array_equal(found[0], n ^ 3)
    np.testing.assert_array_equal(found[1], first + size - 1 - n % size)
    np.testing.assert_array_equal(found[2], first + 2)
    np.testing.assert_array_equal(found[3], n // size == 1)
    np.testing.assert_array_equal(found[4], n < size)
    np.testing.assert_array_equal(found[5].view(np.int32), first - size)


def test_votes_are_words_of_lanes() -> None:
    info = device().info
    if not info.subgroup_ballot:
        pytest.skip(f"{info.name} lacks votes of subgroups")
    size, k = info.subgroup_size, make()
    out, lane = k.operand("out", Access.WRITE), k.subgroup_lane()
    number = k.subgroup_index() * size + lane
    votes = k.subgroup_ballot(k.eq(k.popcount(number) & 1, 1))
    assert len(votes) == -(-size // 32)
    own = k.u32(0)
    for word, vote in enumerate(votes):
        own = k.select(k.eq(lane >> 5, word), vote, own)
    k.store(out, U32, number, (own >> (lane & 31)) & 1, 64)
    (found,) = run(k.finish(), [], [np.zeros(64, np.uint32)])
    np.testing.assert_array_equal(found, [n.bit_count() & 1 for n in range(64)])


def test_atomic_additions_in_shared_memory() -> None:
    """Each invocation adds its number; what it found is a sum of some others'."""
    k = make(64)
    out, found = k.operand("out", Access.WRITE), k.operand("found", Access.WRITE)
    local, held = k.local_index(), k.shared(U32, 4)
    held.store(local, 0)
    k.barrier()
    before = held.atomic_add(local & 3, local)
    k.barrier()
    k.store(found, U32, local, before, 64)
    k.store(out, U32, local, held.load(local), 4)
    blanks = [np.zeros(4, np.uint32), np.zeros(64, np.uint32)]
    sums, befores = run(k.finish(), [], blanks)
    np.testing.assert_array_equal(sums, [sum(range(n, 64, 4)) for n in range(4)])
    for counter in range(4):
        steps = np.sort(befores[counter::4].astype(np.int64))
        added = np.diff([*steps, sums[counter]])
        assert sorted(added) == list(range(counter, 64, 4))


def test_atomic_addition_needs_a_bound_and_integers() -> None:
    k = make(64)
    with pytest.raises(SpirvError, match="known to be below 4"):
        k.shared(U32, 4).atomic_add(k.local_index(), 1)
    with pytest.raises(SpirvError, match="atomic_add on shared memory of f32"):
        k.shared(F32, 4).atomic_add(0, 1.0)


def test_atomics_on_buffers_are_seen_by_all_workgroups() -> None:
    """Workgroups take numbers, and leave under their number what they are."""
    k = make(64)
    words = k.operand("words", Access.UPDATE)
    taken = k.shared(U32, 1)
    with k.when(k.lt(k.local_index(), 1)):
        taken.store(0, k.atomic_add(words, k.u32(0), 1, 9))
    k.barrier()
    number = taken.load(0)
    with k.when(k.lt(k.local_index(), 1)):
        k.atomic_store(words, number + 1, k.workgroup_index() + 100, 9)
        seen = k.atomic_load(words, number + 1, 9)
        with k.when(k.lt(seen, 100)):
            k.atomic_store(words, k.u32(0), 0, 9)
    (found,) = run(k.finish(), [], [np.zeros(9, np.uint32)], grid=(8, 1, 1))
    assert found[0] == 8
    np.testing.assert_array_equal(np.sort(found[1:]), np.arange(100, 108))
    (found,) = run(k_of_many(), [], [np.zeros(9, np.uint32)], grid=(70, 1, 1))
    np.testing.assert_array_equal(found, [70 * 64, *[0] * 8])


def k_of_many() -> Kernel:
    """Every invocation adds 1 to word 0, and nothing past the end of the words."""
    k = make(64)
    words = k.operand("words", Access.UPDATE)
    k.atomic_add(words, k.u32(0), 1, 9)
    k.atomic_store(words, k.u32(9), 7, 9)
    return k.finish()


def _nested_loops(k: KernelBuilder, outer: int, inner: int) -> Kernel:
    out, count = k.operand("out", Access.WRITE), k.variable(U32, 0)
    # From metadata, so that no driver unrolls the loops.
    rounds, inner_rounds = k.metadata(0), k.metadata(1)
    with (
        k.loop(rounds, max_trips=outer),
        k.loop(inner_rounds, max_trips=inner),
    ):
        count.store(count.load() + 1)
    k.store(out, U32, k.local_index(), count.load(), 64)
    return k.finish()


def test_loop_trips_are_counted_as_the_device_does() -> None:
    """Nested loops that just pass run to their end, and longer ones are refused."""
    most = device().info.max_loop_trips
    if most is None:
        pytest.skip(f"{device().info.name} does not limit loops")
    inner = 254
    outer = most // (inner + 2)
    kernel = _nested_loops(make(), outer, inner)
    assert kernel.loop_trips <= most
    (found,) = run(kernel, [], [np.zeros(64, np.uint32)], metadata=(outer, inner))
    assert (found == outer * inner).all()
