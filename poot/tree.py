"""Trees of containers (tuples, lists, dicts, registered classes) of arrays."""

from poot.interpreters.pytree import (
    all,
    flatten,
    leaves,
    map,
    reduce,
    register_dataclass,
    register_node,
    structure,
    transpose,
    unflatten,
)

__all__ = [
    "all",
    "flatten",
    "leaves",
    "map",
    "reduce",
    "register_dataclass",
    "register_node",
    "structure",
    "transpose",
    "unflatten",
]
