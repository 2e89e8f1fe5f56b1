"""Which of several schedules was found to be the fastest, by what they are for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tuned:
    """Names of the schedules to use instead of those that planning would choose.

    Keys say what a schedule is for; one that nobody asks for, or a name that no
    candidate has any more, changes nothing. `seen`, if there is one, gets the names of
    the candidates by what they are for, the usual choice first.
    """

    winners: Mapping[str, str] = field(default_factory=dict)
    seen: dict[str, list[str]] | None = None

    def pick(
        self,
        family: str,
        subject: Callable[[], object],
        usual: T,
        others: Callable[[], Sequence[T]],
    ) -> T:
        """The usual schedule, or the other one that has won.

        `subject` is all that the time depends on.
        """
        if not self.winners and self.seen is None:
            return usual
        key = f"{family} {subject()}"
        candidates = {str(usual): usual}
        for other in others():
            candidates.setdefault(str(other), other)
        if self.seen is not None:
            self.seen.setdefault(key, list(candidates))
        return candidates.get(self.winners.get(key, ""), usual)

    def __repr__(self) -> str:
        told = "\n".join(f"{key}: {self.winners[key]}" for key in sorted(self.winners))
        return f"Tuned({hashlib.sha256(told.encode()).hexdigest()[:16]})"


def digest(program: object) -> str:
    """A short name of what a kernel is made of."""
    return hashlib.sha256(repr(program).encode()).hexdigest()[:16]
