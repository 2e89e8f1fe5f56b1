"""The base of all ops, and tables of rules keyed by op."""

from __future__ import annotations

import enum
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar, cast

from poot.core.errors import DuplicateRule, MissingRule, OperandCountError
from poot.core.interpreter import current
from poot.core.types import TensorType


@dataclass(frozen=True, slots=True)
class PrimitiveKey:
    """What a rule is for: an op class, or one member of a family."""

    op: type[Op]
    member: enum.Enum | None = None

    def __str__(self) -> str:
        return self.op.__name__ + (f"[{self.member.name}]" if self.member else "")


class Parameters:
    """Parameters of an op that belong together; subclasses are frozen dataclasses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class CustomRule:
    """Functions that a user gave for a derivative, under the name that graphs print.

    Equal to itself only. A rule that was read from a graph's text has no functions.
    """

    name: str
    # What they take and give is the business of who made the rule.
    functions: tuple[Callable[..., Any], ...] = ()


class _OpClass(type):
    """The type of op classes, which lets a family be indexed by member."""

    def __getitem__(cls, member: enum.Enum) -> PrimitiveKey:
        return PrimitiveKey(cast("type[Op]", cls), member)


class Op(metaclass=_OpClass):
    """A primitive or a composite, with its parameters inline.

    Subclasses are frozen dataclasses. A family (`Binary`, `Reduce`) names its members
    by an enum in its first field, `op`.
    """

    __slots__ = ()
    # The name that graph text uses.
    name: ClassVar[str]
    # The enum of a family's members.
    members: ClassVar[type[enum.Enum] | None] = None
    # Whether `infer` gives a tuple of types.
    multiple_results: ClassVar[bool] = False
    # Whether only passes may make it.
    composite: ClassVar[bool] = False
    # Whether it is there for transformations only, so that planning sees none.
    transient: ClassVar[bool] = False

    @property
    def key(self) -> PrimitiveKey:
        return _key(type(self), getattr(self, "op", None) if self.members else None)

    @property
    def plain_name(self) -> str:
        """What a user calls the op: `exp` rather than Unary[EXP]."""
        member = self.key.member
        return self.name if member is None else str(member.value)

    def infer(self, *types: Any, **_: Any) -> Any:
        """The type of the result (a tuple of types if `multiple_results`)."""
        raise NotImplementedError

    def infer_all(self, *types: TensorType) -> tuple[TensorType, ...]:
        """The types of all results, as a tuple always."""
        # Ops of several results may hold graphs, which are not to be kept.
        return _inferred(self, types) if self.multiple_results else _known(self, types)

    def bind(self, *operands: Any) -> Any:
        """Apply the op under the current interpreter.

        Operands are the interpreter's values or Scalars; one result comes as itself,
        several as a tuple.
        """
        results = current().process(self, operands)
        return results if self.multiple_results else results[0]

    def __str__(self) -> str:
        return str(self.key)


@functools.cache
def _key(cls: type[Op], member: enum.Enum | None) -> PrimitiveKey:
    return PrimitiveKey(cls, member)


def _inferred(op: Op, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    least, most = _operand_counts(type(op))
    if not least <= len(types) <= most:
        takes = f"{least}" if least == most else f"at least {least}"
        raise OperandCountError(f"{op}: given {len(types)} operands, takes {takes}")
    inferred = op.infer(*types)
    return tuple(inferred) if op.multiple_results else (inferred,)


# Tracing, transforming and checking ask the same again and again.
_known = functools.lru_cache(1 << 14)(_inferred)


@functools.cache
def _operand_counts(cls: type[Op]) -> tuple[float, float]:
    """The least and the most operands that an op takes, by the signature of `infer`."""
    kinds = [p.kind for p in inspect.signature(cls.infer).parameters.values()][1:]
    named = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds
    return named, math.inf if is_open else named


OPS: dict[str, type[Op]] = {}

C = TypeVar("C", bound=type[Op])


def register(cls: C) -> C:
    """Make an op class known to the parser and to the walks over all tables."""
    if cls.name in OPS:
        raise DuplicateRule(f"two ops are called {cls.name!r}")
    OPS[cls.name] = cls
    return cls


def primitive_keys() -> Iterator[PrimitiveKey]:
    """The key of every op that plans know, families by member."""
    for cls in OPS.values():
        if cls.transient:
            continue
        if cls.members is None:
            yield PrimitiveKey(cls)
        else:
            for member in cls.members:
                yield PrimitiveKey(cls, member)


def parameters(op: Op | Parameters) -> dict[str, Any]:
    """The parameters of an op by name, in the order of declaration."""
    return {f.name: getattr(op, f.name) for f in fields(op)}  # type: ignore[arg-type]


R = TypeVar("R", bound=Callable[..., Any])


class RuleTable(Generic[R]):
    """Rules of one interpreter, keyed by primitive.

    A rule for a family as a whole (`table.define(Binary)`) serves each member that has
    none of its own.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._rules: dict[PrimitiveKey, R] = {}

    def define(self, *keys: PrimitiveKey | type[Op]) -> Callable[[R], R]:
        """Record the decorated function as the rule of `keys`."""

        def record(rule: R) -> R:
            for key in keys:
                exact = key if isinstance(key, PrimitiveKey) else PrimitiveKey(key)
                self._add(exact, rule)
            return rule

        return record

    def _add(self, key: PrimitiveKey, rule: R) -> None:
        if key in self._rules:
            raise DuplicateRule(
                f"{key} has a rule in table `{self.name}` already "
                f"({self._rules[key].__name__}); remove one of the two"
            )
        self._rules[key] = rule

    def __getitem__(self, key: PrimitiveKey) -> R:
        rule = self._rules.get(key) or self._rules.get(PrimitiveKey(key.op))
        if rule is None:
            raise MissingRule(
                f"{key} has no rule in table `{self.name}`; define one with "
                f"@{self.name}.define({key})"
            )
        return rule

    def __contains__(self, key: PrimitiveKey) -> bool:
        return key in self._rules or PrimitiveKey(key.op) in self._rules
