"""poot: JAX's programming model on any GPU with a Vulkan driver."""

from poot import lax, nn, numpy, random, testing, tree
from poot.core import errors
from poot.core.graph import Graph
from poot.interpreters import opening  # noqa: F401 (says how the backend is found)
from poot.interpreters.api import (
    block_until_ready,
    clear_caches,
    device_get,
    device_put,
    devices,
    disable_jit,
    evaluate,
)
from poot.interpreters.array import Array
from poot.interpreters.config import config
from poot.interpreters.jit import jit, make_graph
from poot.interpreters.signature import ShapeDtypeStruct
from poot.testing import crosscheck

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Graph",
    "ShapeDtypeStruct",
    "block_until_ready",
    "clear_caches",
    "config",
    "crosscheck",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "errors",
    "evaluate",
    "jit",
    "lax",
    "make_graph",
    "nn",
    "numpy",
    "random",
    "testing",
    "tree",
]
