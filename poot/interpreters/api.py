"""Functions of the package itself: arrays to and from the device, caches, checks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from poot.core import oracle
from poot.core.graph import Graph
from poot.interpreters import pytree
from poot.interpreters.array import Array
from poot.interpreters.backend import backend
from poot.interpreters.config import config
from poot.interpreters.eager import clear_eager_cache
from poot.interpreters.jit import clear_jit_caches
from poot.interpreters.promotion import as_value


def devices() -> tuple[Any, ...]:
    """The device that poot runs on, opened if it was not yet."""
    return backend().devices


def device_put(x: Any) -> Any:
    """A tree with its NumPy arrays and numbers as Arrays on the device."""
    leaves, tree = pytree.flatten(x)
    return pytree.unflatten(tree, [as_value(leaf, "device_put") for leaf in leaves])


def device_get(x: Any) -> Any:
    """A tree with its Arrays as NumPy arrays."""
    leaves, tree = pytree.flatten(x)
    return pytree.unflatten(tree, [np.asarray(leaf) for leaf in leaves])


def block_until_ready(x: Any) -> Any:
    """Wait for all Arrays of a tree; returns the tree."""
    for leaf in pytree.leaves(x):
        if type(leaf) is Array:
            leaf.block_until_ready()
    return x


def evaluate(
    graph: Graph, *args: Any, flush: bool = False
) -> tuple[np.ndarray[Any, Any], ...]:
    """The results of a graph by the oracle: what it means, in NumPy on the host.

    `flush` makes f32 arithmetic take subnormals for zeros, as on a device whose
    `poot.devices()` entry says so.
    """
    given = (arg.numpy() if type(arg) is Array else arg for arg in args)
    return oracle.evaluate(graph, *given, flush=flush)


def disable_jit(disable: bool = True) -> AbstractContextManager[Any]:
    """Within the block jitted functions of this thread run op by op."""
    return config.override(disable_jit=disable)


def clear_caches() -> None:
    """Forget everything that was traced, compiled or written as a kernel."""
    clear_jit_caches()
    clear_eager_cache()
    backend().clear_caches()
