"""Kernels that were built already, by all that shapes their code."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import ParamSpec

from poot.lowering.program import Kernel

_MOST = 4096
_kernels: OrderedDict[tuple[Hashable, ...], Kernel] = OrderedDict()
_lock = threading.Lock()

P = ParamSpec("P")


def kernel_cache(build: Callable[P, Kernel]) -> Callable[P, Kernel]:
    """Let `build` make each kernel once; its arguments are the key, so hashable.

    A digest of its words is added to the kernel's name.
    """

    @functools.wraps(build)
    def cached(*args: P.args, **kwargs: P.kwargs) -> Kernel:
        key = (build.__module__, build.__qualname__, args, *sorted(kwargs.items()))
        with _lock:
            found = _kernels.get(key)
            if found is not None:
                _kernels.move_to_end(key)
                return found
        built = build(*args, **kwargs)
        kernel = replace(built, name=f"{built.name}_{built.digest[:8]}")
        with _lock:
            _kernels[key] = kernel
            if len(_kernels) > _MOST:
                _kernels.popitem(last=False)
        return kernel

    return cached


def clear_kernels() -> None:
    """Forget every kernel."""
    with _lock:
        _kernels.clear()
