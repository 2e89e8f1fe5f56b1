"""poot: JAX's programming model on any GPU with a Vulkan driver."""

from typing import TYPE_CHECKING, Any

from poot import lax, numpy, tree
from poot.core import errors
from poot.core.graph import Graph
from poot.core.source import named_scope
from poot.interpreters import checkpoint_policies
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
from poot.interpreters.callbacks import effects_barrier, pure_callback
from poot.interpreters.checkpoint import checkpoint, checkpoint_name
from poot.interpreters.checks import check
from poot.interpreters.closures import closure_convert
from poot.interpreters.config import config
from poot.interpreters.custom import custom_jvp, custom_vjp, custom_vmap
from poot.interpreters.derivatives import (
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from poot.interpreters.flat import float0
from poot.interpreters.jacobians import hessian, jacfwd, jacrev
from poot.interpreters.jit import jit, make_graph
from poot.interpreters.opening import LAZY_FUNCTIONS, LAZY_MODULES, lazily
from poot.interpreters.shapes import eval_shape
from poot.interpreters.signature import ShapeDtypeStruct
from poot.interpreters.vmap import vmap

if TYPE_CHECKING:
    from poot import debug, nn, random, slots, testing
    from poot.inspection import draw, explain, profile, tune
    from poot.testing import crosscheck

# JAX's other names for them.
jacobian = jacrev
remat = checkpoint

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Graph",
    "ShapeDtypeStruct",
    "block_until_ready",
    "check",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "crosscheck",
    "custom_jvp",
    "custom_vjp",
    "custom_vmap",
    "debug",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "draw",
    "effects_barrier",
    "errors",
    "eval_shape",
    "evaluate",
    "explain",
    "float0",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "make_graph",
    "named_scope",
    "nn",
    "numpy",
    "profile",
    "pure_callback",
    "random",
    "remat",
    "slots",
    "testing",
    "tree",
    "tune",
    "value_and_grad",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> Any:
    return lazily(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY_MODULES, *LAZY_FUNCTIONS})
