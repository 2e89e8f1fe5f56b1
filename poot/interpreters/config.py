"""Settings: one set for the process, and overrides that a thread makes in a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """One choice of all settings. Instances are unique, so identity is equality."""

    # Keep 64-bit input and let Python scalars be 64 bits wide.
    enable_x64: bool = False
    # Let an index outside its axis raise instead of clamping.
    check_bounds: bool = False
    # Wait for every call and raise its failed checks there.
    sync_checks: bool = False
    # Raise where a result has a NaN, naming the operation that gave it first.
    debug_nans: bool = False
    # Let `jit` run the function op by op.
    disable_jit: bool = False


NAMES = tuple(field.name for field in fields(Settings))
_lock = threading.Lock()
_unique: dict[tuple[bool, ...], Settings] = {}


def _settings(**values: bool) -> Settings:
    key = tuple(values[name] for name in NAMES)
    with _lock:
        if key not in _unique:
            _unique[key] = Settings(**values)
        return _unique[key]


class _Overrides(threading.local):
    settings: Settings | None = None


_overrides = _Overrides()
_process: list[Settings] = [_settings(**asdict(Settings()))]


def settings() -> Settings:
    """What holds in this thread now."""
    return _overrides.settings or _process[0]


def _changed(base: Settings, changes: dict[str, Any]) -> Settings:
    for name, value in changes.items():
        if name not in NAMES:
            raise AttributeError(
                f"poot.config has no setting {name!r}; it has {', '.join(NAMES)}"
            )
        if not isinstance(value, bool):
            raise TypeError(f"poot.config.{name} takes True or False, given {value!r}")
    return _settings(**{**asdict(base), **changes})


class Config:
    """The settings as attributes; assignment holds for the whole process.

    `with poot.config.override(enable_x64=True): …` holds in this thread, in the block.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> bool:
        if name not in NAMES:
            raise AttributeError(
                f"poot.config has no setting {name!r}; it has {', '.join(NAMES)}"
            )
        value: bool = getattr(settings(), name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        _process[0] = _changed(_process[0], {name: value})

    def __dir__(self) -> list[str]:
        return [*NAMES, "override"]

    def __repr__(self) -> str:
        now = asdict(settings())
        return f"config({', '.join(f'{name}={now[name]}' for name in NAMES)})"

    @contextmanager
    def override(self, **changes: bool) -> Iterator[Config]:
        """Change settings for this thread within the block."""
        before = _overrides.settings
        _overrides.settings = _changed(settings(), changes)
        try:
            yield self
        finally:
            _overrides.settings = before


config = Config()
