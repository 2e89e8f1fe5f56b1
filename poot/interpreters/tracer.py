"""AnyTracer values: what a function sees instead of arrays while it is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from poot.core.dtypes import Scalar
from poot.core.equation import Operand
from poot.core.errors import ConcretizationError, PootError, TraceLeak
from poot.core.source import user_source
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.methods import Value

if TYPE_CHECKING:
    from poot.interpreters.stage import StagingInterpreter


class AnyTracer(Value):
    """What stands for an array while a function is staged or transformed.

    It belongs to one interpreter, and is of use only while that runs the function.
    """

    __slots__ = ()

    def misplaced(self) -> PootError:
        """The error for a use where the value does not belong."""
        raise NotImplementedError

    @property
    def buffer(self) -> NoReturn:
        """What an Array has; a jitted function outside the trace looks for it."""
        raise self.misplaced()

    def block_until_ready(self) -> Self:
        """Nothing to wait for while tracing."""
        return self

    def _concretize(self, wanted: str, remedy: str) -> NoReturn:
        """Raise ConcretizationError for a use that needs the numbers."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        self._concretize(
            "bool() (an `if`, `while`, `and` or `or`)",
            "use poot.numpy.where, or make the argument that it comes from static "
            "(static_argnums, static_argnames)",
        )

    def __int__(self) -> int:
        self._concretize("int()", _STATIC)

    def __float__(self) -> float:
        self._concretize("float()", "use .astype(float), or " + _STATIC)

    def __complex__(self) -> complex:
        self._concretize("complex()", _STATIC)

    def __index__(self) -> int:
        self._concretize("the use as a Python index or size", _STATIC)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._concretize(
            "a NumPy function or numpy.asarray",
            "use the function of poot.numpy instead of NumPy's",
        )

    def item(self, *index: Any) -> bool | int | float:
        self._concretize(".item()", "return the value from the function")

    def tolist(self) -> Any:
        self._concretize(".tolist()", "return the value from the function")

    def tobytes(self) -> bytes:
        self._concretize(".tobytes()", "return the value from the function")

    def numpy(self) -> Any:
        self._concretize(".numpy()", "return the value from the function")

    def __reduce__(self) -> NoReturn:
        self._concretize("pickling", "return the value and pickle the array")

    def __iter__(self) -> Any:
        if not self.shape:
            self._concretize("iteration", "a scalar cannot be iterated over")
        return iter([self[i] for i in range(self.shape[0])])

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Tracer(AnyTracer):
    """A value of the graph that one staging interpreter builds."""

    __slots__ = ("operand", "staging")

    def __init__(
        self, staging: StagingInterpreter, operand: Operand, aval: Aval
    ) -> None:
        self.staging = staging
        self.operand = operand
        self.aval = aval

    def with_weak(self, weak: bool) -> Self:
        if weak == self.aval.weak:
            return self
        aval = aval_of(self.aval.type, weak)
        return type(self)(self.staging, self.operand, aval)

    def origin(self) -> str:
        """Which argument or op the value comes from, and where in the user's code."""
        if isinstance(self.operand, Scalar):
            return f"the number {self.operand.value}"
        return self.staging.origin(self.operand)

    def misplaced(self) -> PootError:
        """The error for a use outside the trace that the value belongs to."""
        function = self.staging.function_name
        where = (
            f"was used after `{function}` had returned"
            if self.staging.is_finished
            else f"was used outside of the trace of `{function}`"
        )
        return TraceLeak(
            f"a traced value ({self.aval.type}), {self.origin()} while tracing "
            f"`{function}`, {where} ({user_source()}); return it from `{function}` "
            "instead of storing it"
        )

    def _concretize(self, wanted: str, remedy: str) -> NoReturn:
        if self.staging.is_finished:
            raise self.misplaced()
        why = (
            f"`{self.staging.function_name}` is being traced and they are not known "
            f"yet. The value ({self.aval.type}) is {self.origin()}"
        )
        raise ConcretizationError(
            f"{wanted} needs the numbers of a traced value at {user_source()}, but "
            f"{why}; {remedy}",
            why,
        )

    def __format__(self, spec: str) -> str:
        if spec:
            self._concretize(f"the format {spec!r}", "print it without a format")
        return repr(self)

    def __repr__(self) -> str:
        return f"Traced<{self.aval}>"


_STATIC = (
    "make the argument that it comes from static (static_argnums, static_argnames), "
    "or compute with poot.numpy"
)
