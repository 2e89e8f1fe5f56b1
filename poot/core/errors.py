"""Every error that poot raises on purpose, one class a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from poot.core.source import UNKNOWN, user_source

if TYPE_CHECKING:
    from poot.core.op import Op
    from poot.core.types import TensorType


class PootError(Exception):
    """The base of all errors of poot.

    A traceback ends with a note of the user's line, which stands above poot's own
    frames in it.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        source = user_source()
        if source is not UNKNOWN:
            self.add_note(f"in your code: {source}")


class ShapeError(PootError, ValueError):
    """Shapes, axes or sizes do not fit the operation."""


class DTypeError(PootError, TypeError):
    """An operation does not take the dtypes that it was given."""


class RangeError(PootError, OverflowError):
    """A Python number does not fit the dtype that it must have."""


class IndexingError(PootError, IndexError):
    """An index is out of range or of a kind that is not taken."""


class NonConcreteBooleanIndexError(IndexingError):
    """A traced mask is an index, so that no shape of the result is known."""


class MissingRule(PootError, NotImplementedError):
    """A primitive has no rule in a table."""


class DuplicateRule(PootError, RuntimeError):
    """A primitive has a rule in a table already."""


class NotLinearError(PootError, TypeError):
    """Something is to be transposed that is not linear in its operands."""


class ForwardModeError(PootError, TypeError):
    """A function whose derivative is given for reverse mode only is pushed forward."""


class BatchingError(PootError, ValueError):
    """Something cannot be done for a batch; says what to do instead."""


class NoDerivativeError(PootError, NotImplementedError):
    """Something has no derivative by an operand; says what to do instead."""


class ArgumentError(PootError, TypeError):
    """A transformed function was given an argument of a kind that it does not take."""


class DonationError(PootError, ValueError):
    """One array was donated and used in the same call."""


class TraceLeak(PootError, RuntimeError):
    """A traced value was used after its trace had ended."""


class ConcretizationError(PootError, TypeError):
    """A traced value was asked for its numbers.

    `why` says which function is being traced, and where the value comes from.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class DeletedArrayError(PootError, RuntimeError):
    """An array was used after it had been donated or deleted."""


class CheckError(PootError, RuntimeError):
    """A run-time check inside a computation (a witness) failed."""

    @classmethod
    def of(cls, message: str, source: object, word: int) -> Self:
        """The error for a witness whose word is `word`, which is not 0.

        That of a loop is 1 + the iteration that failed first, which `{iteration}` in
        the message stands for.
        """
        told = message.replace("{iteration}", str(word - 1))
        return cls(f"{told} ({source})")


class NanError(PootError, FloatingPointError):
    """An operation gave a NaN while `config.debug_nans` looks for them."""


# --- graphs -----------------------------------------------------------------


class CrossCheckError(PootError, AssertionError):
    """Two executors of one graph gave results that are further apart than allowed."""


class GradientError(PootError, AssertionError):
    """A derivative is further off the differences of its function than allowed."""


class GraphError(PootError, ValueError):
    """A graph breaks a rule of the specification."""


class UndefinedValueError(GraphError):
    """A use stands before its definition, or names no value."""


class RedefinitionError(GraphError):
    """A value is defined twice, or both bound and computed."""


class TypeMismatchError(GraphError):
    """A value's recorded type differs from what its equation gives."""


class OperandCountError(GraphError):
    """An op is given another number of operands than it takes."""


class ResultCountError(GraphError):
    """An equation has another number of results than its op declares."""


class StorageError(GraphError):
    """A value's storage does not fit the way it is made or used."""


class OutputError(GraphError):
    """An output names a value in a way that outputs may not."""


class LostOutputError(GraphError):
    """An edit loses a result, a witness, an export or a state pair."""


class StatePairError(GraphError):
    """A state input and its next value differ, or one stands alone."""


class ConstPayloadError(GraphError):
    """A constant has no payload, or one of another type."""


class CycleError(GraphError):
    """Equations need each other's results."""


class CompositeError(GraphError):
    """A tracer emitted an op that only passes may make."""


class ParseError(GraphError):
    """Text is not a graph in poot's printed form."""


# --- lowering and devices ---------------------------------------------------


class LoweringError(PootError, RuntimeError):
    """An equation cannot be planned on the device at hand."""


class CapabilityError(LoweringError):
    """The device lacks a feature that an equation needs."""


class LimitError(LoweringError):
    """Something needs more than the device's limit; says both numbers."""


class CompositeRefused(LoweringError):
    """A composite that the device cannot run as one; its decomposition may do.

    `op` and `types` are the composite and the types of its operands.
    """

    def __init__(self, message: str, op: Op, types: tuple[TensorType, ...]) -> None:
        super().__init__(message)
        self.op = op
        self.types = types


class SpirvError(PootError, ValueError):
    """A kernel under construction breaks a rule of SPIR-V."""


class DeviceError(PootError, RuntimeError):
    """The Vulkan driver refused or failed."""


class NoDeviceError(DeviceError):
    """No Vulkan device could be found or chosen."""


class DeviceLost(DeviceError):
    """The device stopped answering; the process must be started anew."""


class DeviceTimeout(DeviceError, TimeoutError):
    """Submitted work did not end in the time allowed."""


class OutOfMemory(DeviceError, MemoryError):
    """An allocation does not fit; says how much was asked for and is left."""


class ForkError(DeviceError):
    """A device opened before a fork was used in the child process."""
