"""Trees of containers with values at their leaves, by optree, as JAX has them.

Dicts are walked by sorted keys; None is a container without leaves.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import optree

from poot.core.errors import ArgumentError

NAMESPACE = "poot"
_NONE = object()
TreeDef = optree.PyTreeSpec
C = TypeVar("C", bound=type)


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeDef]:
    """The leaves in order, and the tree without them."""
    return optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with these leaves."""
    return optree.tree_unflatten(treedef, leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in order."""
    return optree.tree_leaves(tree, is_leaf, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The tree without its leaves; equal for trees of one form."""
    return optree.tree_structure(tree, is_leaf, namespace=NAMESPACE)


def map(
    function: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """`function` of each leaf, and of the subtrees of `rest` in its place."""
    return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, namespace=NAMESPACE)


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    *initializer: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Fold the leaves from the left."""
    return optree.tree_reduce(
        function, tree, *initializer, is_leaf=is_leaf, namespace=NAMESPACE
    )


def all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves are true."""
    return optree.tree_all(tree, is_leaf=is_leaf, namespace=NAMESPACE)


def transpose(outer: TreeDef, inner: TreeDef, tree: Any) -> Any:
    """A tree of form `outer` of trees of form `inner`, turned inside out."""
    return optree.tree_transpose(outer, inner, tree)


def by_sorted_keys(treedef: TreeDef) -> TreeDef:
    """The tree whose dicts have their keys in order, not as they were inserted.

    Dicts that differ in this alone have equal trees: what is kept for one of them must
    not show the order of another.
    """
    return optree.treespec_transform(treedef, _sort_keys)


def _sort_keys(node: TreeDef) -> TreeDef:
    if node.type not in (dict, defaultdict):
        return node
    given: Any = optree.tree_unflatten(node, range(node.num_children))
    ordered = given.copy()
    ordered.clear()
    ordered.update({key: given[key] for key in node.entries()})
    return structure(ordered)


def leaf_paths(treedef: TreeDef) -> list[optree.PyTreeAccessor]:
    """How to get at each leaf from the root; `codify(name)` gives the words."""
    return optree.treespec_accessors(treedef)


def prefix_leaves(prefix: Any, tree: Any, where: str) -> list[Any]:
    """What a prefix of a tree says of each leaf of it; None in a prefix is a leaf.

    ArgumentError where it is no prefix.
    """

    # None in the prefix is an entry, None in the tree has no leaves.
    marked = optree.tree_map(
        lambda x: _NONE if x is None else x,
        prefix,
        is_leaf=lambda x: x is None,
        namespace=NAMESPACE,
    )
    try:
        found = optree.broadcast_prefix(marked, tree, namespace=NAMESPACE)
        return [None if x is _NONE else x for x in found]
    except ValueError as error:
        raise ArgumentError(
            f"{where} {prefix!r} is no tree prefix of {structure(tree)}: {error}"
        ) from None


def register_node(
    cls: C,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, Any], Any],
) -> C:
    """Make a class a container: `flatten(x)` gives children and hashable static data,
    `unflatten(static, children)` the object."""
    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
    return cls


def register_dataclass(
    cls: C,
    data_fields: Iterable[str] | None = None,
    meta_fields: Iterable[str] = (),
) -> C:
    """Make a dataclass a container of its fields.

    Those in `meta_fields`, or declared with `metadata={"static": True}`, are part of
    the tree's form instead and must be hashable.
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is no dataclass; decorate it with @dataclass")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    meta = [name for name, field in fields.items() if field.metadata.get("static")]
    meta += [name for name in meta_fields if name not in meta]
    data = [name for name in fields if name not in meta]
    data = data if data_fields is None else list(data_fields)
    if sorted([*data, *meta]) != sorted(fields):
        raise TypeError(
            f"{cls.__name__} has the fields {', '.join(fields)}; given as data: "
            f"{', '.join(data)}, as meta: {', '.join(meta)}; name each once"
        )
    _register_fields(cls, tuple(data), tuple(meta))
    return cls


def _register_fields(cls: type, data: tuple[str, ...], meta: tuple[str, ...]) -> None:
    def take_apart(x: Any) -> tuple[Any, Any, Any]:
        values = tuple(getattr(x, name) for name in data)
        return values, tuple(getattr(x, name) for name in meta), data

    def put_together(statics: Any, values: Any) -> Any:
        children = dict(zip(data, values, strict=True))
        return cls(**children, **dict(zip(meta, statics, strict=True)))

    optree.register_pytree_node(
        cls,
        take_apart,
        put_together,
        path_entry_type=optree.GetAttrEntry,
        namespace=NAMESPACE,
    )
