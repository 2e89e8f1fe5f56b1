"""Reads the text that `text` prints."""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from poot.core.dtypes import DType, Kind, Scalar, by_name
from poot.core.equation import (
    Eqn,
    Export,
    GraphOutput,
    Operand,
    Result,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.errors import DTypeError, ParseError, ShapeError
from poot.core.op import OPS, CustomRule, Op, Parameters
from poot.core.source import Source
from poot.core.types import (
    ANONYMOUS,
    Identity,
    Named,
    Slot,
    SlotKey,
    Storage,
    TensorType,
    ValueMeta,
    Weight,
)

_TOKEN = re.compile(
    r"""
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<value>%\d+)
    | (?P<scalar>-?(?:0x[0-9a-f]+|inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?):[a-z]\w*)
    | (?P<number>-?\d+)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>[{}()\[\]=,:])
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_INPUTS = {s.value: s for s in Storage if s is not Storage.COMPUTED}


class Reader:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Where the current token starts and ends.
        self.start = self.position = 0
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Move on; the token left behind."""
        left = self.token
        space = _SPACE.match(self.text, self.position)
        self.start = space.end() if space else self.position
        if self.start == len(self.text):
            self.kind, self.token = "end", ""
            return left
        match = _TOKEN.match(self.text, self.start)
        if match is None or match.lastgroup is None:
            self.kind, self.token = "unreadable", self.text[self.start :].split()[0]
            self.fail("a token")
        self.position = match.end()
        self.kind, self.token = match.lastgroup, match.group(match.lastgroup)
        return left

    def error(self, message: object, at: int) -> ParseError:
        """An error at the line of a position in the text."""
        return ParseError(f"line {self.line(at)}: {message}")

    def line(self, at: int) -> int:
        """The number of the line at a position in the text."""
        return self.text.count("\n", 0, at) + 1

    def fail(self, wanted: str) -> typing.NoReturn:
        found = self.token or "the end"
        raise self.error(f"expected {wanted}, found {found!r}", self.start)

    def take(self, token: str) -> None:
        if self.token != token or self.kind == "string":
            self.fail(repr(token))
        self.advance()

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind != "string":
            self.advance()
            return True
        return False

    def expect(self, kind: str) -> str:
        if self.kind != kind:
            self.fail(f"a {kind}")
        return self.advance()

    def string(self) -> str:
        return str(json.loads(self.expect("string")))

    def value(self) -> ValueId:
        return ValueId(int(self.expect("value")[1:]))

    def scalar(self) -> Scalar:
        start, token = self.start, self.expect("scalar")
        try:
            return _scalar(token)
        except (DTypeError, ParseError) as error:
            raise self.error(error, start) from None

    def separated(self, end: str, item: Callable[[], Any]) -> list[Any]:
        """Items between commas up to `end`, which is taken too."""
        items: list[Any] = []
        while not self.accept(end):
            if items:
                self.take(",")
            items.append(item())
        return items


class _GraphParser:
    def __init__(
        self, reader: Reader, make: Callable[..., Any], consts: Sequence[Any]
    ) -> None:
        self.reader = reader
        self.make = make
        self.consts = list(consts)
        self.metas: dict[ValueId, ValueMeta] = {}
        self.inputs: list[ValueId] = []
        self.eqns: list[Eqn] = []
        self.outputs: list[GraphOutput] = []
        self.payloads: dict[ValueId, Any] = {}
        self.sources: list[Source] = []
        # Where the input, equation or output that is being read starts.
        self.statement = 0

    def graph(self) -> Any:
        reader = self.reader
        reader.take("graph")
        reader.take("{")
        while not reader.accept("}"):
            self.statement = reader.start
            if reader.token in _INPUTS:
                self._input(_INPUTS[reader.advance()])
            elif reader.kind == "value":
                self._eqn()
            else:
                self._output()
        self._require_all_payloads()
        if sorted(self.metas) != list(range(len(self.metas))):
            raise ParseError("the values are not numbered from %0 without gaps")
        return self.make(
            tuple(self.metas[ValueId(i)] for i in range(len(self.metas))),
            tuple(self.inputs),
            tuple(self.eqns),
            tuple(self.outputs),
            self.payloads,
            tuple(self.sources),
        )

    def _require_all_payloads(self) -> None:
        storages = (meta.storage for meta in self.metas.values())
        count = sum(storage is Storage.CONST for storage in storages)
        given = len(self.consts) + len(self.payloads)
        if given not in (0, count):
            raise ParseError(f"{given} constants given, the text has {count}")

    def _define(self, value: ValueId, meta: ValueMeta) -> None:
        if value in self.metas:
            raise self.reader.error(f"%{value} is defined twice", self.statement)
        self.metas[value] = meta

    def _type(self) -> TensorType:
        start, name = self.reader.start, self.reader.expect("word")
        self.reader.take("[")
        sizes = self.reader.separated("]", lambda: int(self.reader.expect("number")))
        try:
            return TensorType(tuple(sizes), by_name(name))
        except (DTypeError, ShapeError) as error:
            raise self.reader.error(error, start) from None

    def _identity(self) -> Identity:
        if self.reader.accept("named"):
            return Named(self.reader.string())
        if self.reader.accept("key"):
            return SlotKey(self.reader.string())
        if self.reader.accept("weight"):
            return Weight(self.reader.string())
        return ANONYMOUS

    def _slot(self) -> Slot | None:
        reader = self.reader
        if not reader.accept("kind"):
            return None
        kind = reader.string()
        low = int(reader.expect("number")) if reader.accept("low") else None
        high = int(reader.expect("number")) if reader.accept("high") else None
        return Slot(kind, low, high)

    def _input(self, storage: Storage) -> None:
        value = self.reader.value()
        self.reader.take(":")
        type, slot = self._type(), self._slot()
        self._define(value, ValueMeta(type, storage, self._identity(), slot))
        self.inputs.append(value)
        if storage is Storage.CONST and self.consts:
            self.payloads[value] = self.consts.pop(0)

    def _out(self) -> ValueId:
        value = self.reader.value()
        self.reader.take(":")
        type = self._type()
        computed = self.reader.accept("computed")
        storage = Storage.COMPUTED if computed else Storage.DEVICE
        self._define(value, ValueMeta(type, storage, self._identity()))
        return value

    def _eqn(self) -> None:
        reader, start = self.reader, self.statement
        outs = reader.separated("=", self._out)
        name = reader.expect("word")
        op = self._op(name, reader.accept("["), start)
        reader.take("(")
        operands = reader.separated(")", self._operand)
        self.eqns.append(Eqn(op, tuple(operands), tuple(outs)))
        line = reader.line(start)
        self.sources.append(Source("<graph text>", line, name))

    def _op(self, name: str, has_parameters: bool, start: int) -> Op:
        """The op of that name; its parameters, if any, come next."""
        reader = self.reader
        if name not in OPS:
            known = ", ".join(OPS)
            raise reader.error(f"no op is called {name!r}; known: {known}", start)
        given = {}
        if has_parameters:
            pairs = reader.separated("]", self._parameter)
            given = dict(pairs)
            if len(given) != len(pairs):
                raise reader.error(f"{name} has a parameter twice", start)
        try:
            return _make_op(OPS[name], given)
        except (DTypeError, ParseError) as error:
            raise reader.error(error, start) from None

    def _operand(self) -> Operand:
        if self.reader.kind == "scalar":
            return self.reader.scalar()
        return self.reader.value()

    def _parameter(self) -> tuple[str, Any]:
        name = self.reader.expect("word")
        self.reader.take("=")
        return name, self._parameter_value()

    def _parameter_value(self) -> Any:
        reader = self.reader
        if reader.kind == "number":
            return int(reader.advance())
        if reader.kind == "scalar":
            return reader.scalar()
        if reader.kind == "string":
            return reader.string()
        if reader.token == "graph":
            return _GraphParser(reader, self.make, ()).graph()
        if reader.accept("("):
            items = reader.separated(")", self._item)
            is_named = items and all(isinstance(item, _Named) for item in items)
            return dict(items) if is_named else tuple(items)
        start, word = reader.start, reader.expect("word")
        return self._op(word, True, start) if reader.accept("[") else _Word(word)

    def _item(self) -> Any:
        value = self._parameter_value()
        if isinstance(value, _Word) and self.reader.accept("="):
            return _Named(value, self._parameter_value())
        return value

    def _output(self) -> None:
        reader = self.reader
        kind = reader.expect("word")
        value = reader.value()
        if kind == "result":
            self.outputs.append(Result(value))
        elif kind == "witness":
            self.outputs.append(Witness(value, reader.string()))
        elif kind == "export":
            self.outputs.append(Export(value, reader.string()))
        elif kind == "next":
            reader.take("=")
            self.outputs.append(StateNext(reader.value(), value))
        else:
            raise reader.error(f"{kind!r} starts no line of a graph", self.statement)


class _Word(str):
    """A bare word, whose meaning hangs on the parameter it is given for."""


class _Named(typing.NamedTuple):
    """One of several parameters that belong together."""

    name: str
    value: Any


def _scalar(token: str) -> Scalar:
    number, _, name = token.rpartition(":")
    dtype = by_name(name)
    if "0x" in number:
        bits = int(number, 16)
        if not 0 <= bits < 1 << dtype.bits:
            raise ParseError(f"{number} are no {dtype.bits} bits of {dtype}")
        return Scalar(dtype, bits)
    if dtype.is_float or dtype.kind is Kind.STORAGE:
        return Scalar.of(float(number), dtype)
    try:
        whole = int(number)
    except ValueError:
        raise ParseError(f"{number} is no element of {dtype}") from None
    scalar = Scalar.of(whole, dtype)
    if scalar.value != whole:
        raise ParseError(f"{number} does not fit {dtype}")
    return scalar


def _make_op(cls: type[Op], given: dict[str, Any]) -> Op:
    return typing.cast(Op, _made(cls, given, cls.name))


def _made(cls: type[Op | Parameters], given: dict[str, Any], where: str) -> Any:
    """An op or parameters that belong together, of what is given by name."""
    wanted = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if sorted(given) != sorted(wanted):
        raise ParseError(
            f"{where} has parameters ({', '.join(given)}), takes ({', '.join(wanted)})"
        )
    hints = typing.get_type_hints(cls)
    return cls(**{n: _typed(v, hints[n], f"{where}.{n}") for n, v in given.items()})


def _typed(value: Any, hint: Any, where: str) -> Any:
    """A parameter of the type that its op declares."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, _Word):
        return _meaning(value, options, where)
    if isinstance(value, dict):
        for option in options:
            if isinstance(option, type) and issubclass(option, Parameters):
                return _made(option, value, where)
    if isinstance(value, str) and CustomRule in options:
        return CustomRule(value)
    for option in options:
        if _is_of(value, option):
            return value
    wanted = " or ".join(
        str(option) if typing.get_origin(option) else option.__name__
        for option in options
    )
    raise ParseError(f"{where} is {value}, takes {wanted}")


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a parsed value has a type: an int, a string, an op, a graph, tuples."""
    if hint is Op:
        return isinstance(value, Op)
    if typing.get_origin(hint) is not tuple:
        return type(value) is hint
    items = typing.get_args(hint)
    if not isinstance(value, tuple):
        return False
    if items[-1] is Ellipsis:
        return all(_is_of(item, items[0]) for item in value)
    return len(value) == len(items) and all(map(_is_of, value, items))


def _meaning(word: _Word, options: tuple[Any, ...], where: str) -> Any:
    """What a bare word stands for as one of several types."""
    if word == "none" and type(None) in options:
        return None
    if word in ("true", "false") and bool in options:
        return word == "true"
    for option in options:
        if option is DType:
            return by_name(word)
        if isinstance(option, type) and issubclass(option, enum.Enum):
            if word in {member.value for member in option}:
                return option(str(word))
            known = ", ".join(str(member.value) for member in option)
            raise ParseError(f"{where} is {word!r}, takes one of {known}")
    raise ParseError(f"{where} does not take the word {word!r}")


def parse_graph(text: str, make: Callable[..., Any], consts: Sequence[Any]) -> Any:
    """Call `make` with the fields of the graph that `text` prints.

    `consts` are the payloads of the constants in the order of printing.
    """
    reader = Reader(text)
    parser = _GraphParser(reader, make, consts)
    graph = parser.graph()
    if reader.kind != "end":
        reader.fail("the end of the text")
    return graph
