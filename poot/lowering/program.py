"""The Program: what a device is to do, as printable data without device handles."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from poot.core.types import TensorType


class Access(enum.Enum):
    """How a kernel touches an operand."""

    READ = "r"
    WRITE = "w"
    UPDATE = "rw"

    @property
    def reads(self) -> bool:
        return self is not Access.WRITE

    @property
    def writes(self) -> bool:
        return self is not Access.READ


@dataclass(frozen=True, slots=True)
class KernelOperand:
    """One pointer of a kernel: how it is used and how its address arrives."""

    name: str
    access: Access
    # False: the push constant holds the address. True: it holds the address of an
    # entry, and the entry holds the address. Entries stand in the address table, but
    # for an operand in the arena: its range is the entry, which a loop moves along.
    indirect: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compute kernel: SPIR-V and what a caller must know to launch it.

    Push constants, in order: the address of the dispatch's metadata words (8 bytes;
    present only if `uses_metadata`), then one 8-byte address an operand. Where these
    exceed the device's push-constant size the kernel is `wide`: a single 8-byte
    address of a block that holds them all in the same order.
    """

    name: str
    # Thousands of bytes, which nobody reads in the printed form of a program.
    words: bytes = field(repr=False)
    workgroup: tuple[int, int, int]
    operands: tuple[KernelOperand, ...]
    uses_metadata: bool = False
    wide: bool = False
    # Worst-case loop iterations of one invocation, over all loops it runs.
    loop_trips: int = 0
    shared_bytes: int = 0
    # One line that says which schedule made it, for reports.
    schedule: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.words).hexdigest()

    @property
    def push_bytes(self) -> int:
        return 8 if self.wide else 8 * (len(self.operands) + self.uses_metadata)


class Space(enum.Enum):
    """Where a buffer of a Program lives and who owns it."""

    ARGUMENT = "argument"  # given by the caller; index = input number
    RESULT = "result"  # allocated a call; index = result number
    STATE = "state"  # donated by the caller, updated in place; index = input number
    CONST = "const"  # bound once an executable; index = const number
    SLOT = "slot"  # a few bytes that the host writes a call; offset in the slot block
    WITNESS = "witness"  # words that the host reads after a call; offset in the packet
    ARENA = "arena"  # scratch, shared by all replays of the executable
    # Row i of another buffer, i counted by a loop; index = cursor number. Only plans in
    # the making have it: nodes name the buffer and the word where the address stands.
    ROW = "row"


# Spaces whose address changes from call to call, so that it goes through the table.
TABLE_SPACES = frozenset({Space.ARGUMENT, Space.RESULT, Space.STATE})
# Spaces whose address a kernel loads from an entry, of the table or of the arena.
INDIRECT_SPACES = TABLE_SPACES | {Space.ROW}


@dataclass(frozen=True, slots=True)
class BufferRange:
    """Bytes [offset, offset + size) of one buffer of the Program."""

    space: Space
    index: int
    offset: int
    size: int

    def overlaps(self, other: BufferRange) -> bool:
        return (
            self.space is other.space
            and self.index == other.index
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )

    def __str__(self) -> str:
        return (
            f"{self.space.value}{self.index}[{self.offset}:{self.offset + self.size}]"
        )


def united(ranges: Iterable[BufferRange]) -> list[BufferRange]:
    """The same bytes in ranges that do not overlap, so that each counts once."""
    found: list[BufferRange] = []
    for where in sorted(ranges, key=lambda r: (r.space.value, r.index, r.offset)):
        if found and found[-1].overlaps(where):
            last = found.pop()
            end = max(last.offset + last.size, where.offset + where.size)
            where = replace(last, size=end - last.offset)
        found.append(where)
    return found


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch of a kernel.

    `operands[i]` is the buffer whose address operand i gets (its range begins at the
    address), or the entry of the arena that holds it. `reads` and `writes` are the byte
    ranges that the launch may touch, which barriers and the race checker go by.
    """

    kernel: Kernel
    operands: tuple[BufferRange, ...]
    grid: tuple[int, int, int]
    metadata: tuple[int, ...] = ()
    reads: tuple[BufferRange, ...] = ()
    writes: tuple[BufferRange, ...] = ()
    label: str = ""
    flops: int = 0

    @property
    def bytes_moved(self) -> int:
        return sum(r.size for r in self.reads) + sum(w.size for w in self.writes)

    def __str__(self) -> str:
        x, y, z = self.grid
        operands = ", ".join(str(operand) for operand in self.operands)
        return (
            f"dispatch {self.kernel.name} grid {x}x{y}x{z} ({operands}) # {self.label}"
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy `source.size` bytes from `source` to `target`; both of one size."""

    source: BufferRange
    target: BufferRange
    label: str = ""

    @property
    def reads(self) -> tuple[BufferRange, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[BufferRange, ...]:
        return (self.target,)

    def __str__(self) -> str:
        return f"copy {self.source} -> {self.target} # {self.label}"


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` `trips` times."""

    trips: int
    body: tuple[Node, ...]

    @property
    def bodies(self) -> tuple[tuple[Node, ...], ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True)
class While:
    """Run `predicate`, then `body`, as long as the word at `flag` is not zero."""

    predicate: tuple[Node, ...]
    flag: BufferRange
    body: tuple[Node, ...]

    @property
    def bodies(self) -> tuple[tuple[Node, ...], ...]:
        return self.predicate, self.body


@dataclass(frozen=True, slots=True)
class Branch:
    """Run the body of `bodies` whose number stands at `selector`."""

    selector: BufferRange
    bodies: tuple[tuple[Node, ...], ...]


Node = Dispatch | Copy | Loop | While | Branch


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """Where the host writes one scalar of a call."""

    input_index: int
    type: TensorType
    offset: int


@dataclass(frozen=True, slots=True)
class WitnessSpec:
    """A word of the witness packet: the call failed if it is not zero."""

    offset: int
    message: str
    source: str


@dataclass(frozen=True, slots=True)
class ResultSpec:
    """One result: a fresh buffer, or an input passed through or updated in place."""

    type: TensorType
    # Number of the input whose buffer the result is (donated state, or an argument
    # returned as it is or reshaped); None where the result has a buffer of its own.
    input_index: int | None = None
    # Number of the constant whose buffer the result is.
    const_index: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A tree of launches and copies with the buffers that they name."""

    body: tuple[Node, ...]
    # What a call takes: the graph's inputs but for the constants. Input numbers, here
    # and in the ranges of the body, count these.
    inputs: tuple[TensorType, ...]
    # The graph's results, then one for each export.
    results: tuple[ResultSpec, ...]
    # Inputs that are donated: their buffers are updated in place or given back.
    donated: frozenset[int] = frozenset()
    # Those of the graph, then one for each table.
    consts: tuple[TensorType, ...] = ()
    slots: tuple[SlotSpec, ...] = ()
    witnesses: tuple[WitnessSpec, ...] = ()
    arena_bytes: int = 0
    # What computes the tables: its results are the last constants of this program.
    setup: Program | None = None
    # The number of the result that holds each exported value.
    exports: dict[str, int] = field(default_factory=dict)
    # What planning changed of the graph, for reports.
    notes: tuple[str, ...] = ()

    @property
    def given_consts(self) -> tuple[TensorType, ...]:
        """The constants that are given, not computed by `setup`."""
        computed = 0 if self.setup is None else len(self.setup.results)
        return self.consts[: len(self.consts) - computed]

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Every Dispatch of the tree once, in order."""
        return tuple(node for node in _walk(self.body) if isinstance(node, Dispatch))

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels by name."""
        return {d.kernel.name: d.kernel for d in self.dispatches}

    def __str__(self) -> str:
        lines = [f"program arena {self.arena_bytes} B {{"]
        lines += _print_nodes(self.body, "  ")
        return "\n".join([*lines, "}"])


def _walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Loop | While | Branch):
            for body in node.bodies:
                yield from _walk(body)


def _print_nodes(nodes: tuple[Node, ...], indent: str) -> list[str]:
    lines = []
    for node in nodes:
        if isinstance(node, Loop):
            lines.append(f"{indent}loop {node.trips} {{")
            lines += _print_nodes(node.body, indent + "  ")
            lines.append(indent + "}")
        elif isinstance(node, While):
            lines.append(f"{indent}while {node.flag} {{")
            lines += _print_nodes(node.predicate, indent + "  ")
            lines.append(indent + "} do {")
            lines += _print_nodes(node.body, indent + "  ")
            lines.append(indent + "}")
        elif isinstance(node, Branch):
            lines.append(f"{indent}branch {node.selector} {{")
            for number, body in enumerate(node.bodies):
                lines.append(f"{indent}  case {number}:")
                lines += _print_nodes(body, indent + "    ")
            lines.append(indent + "}")
        else:
            lines.append(indent + str(node))
    return lines
