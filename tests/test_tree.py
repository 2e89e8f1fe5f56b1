"""Trees: which containers there are, their order, registering, paths in messages."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import ArgumentError, DTypeError

X = np.array([1.0, 2.0], np.float32)
Pair = namedtuple("Pair", "first second")


def test_flatten_and_unflatten_nested_containers() -> None:
    tree = {"b": [1, (2, None)], "a": Pair(3, {}), "c": OrderedDict(z=4, y=5)}
    leaves, treedef = poot.tree.flatten(tree)
    assert leaves == [3, 1, 2, 4, 5]
    assert treedef.num_leaves == 5
    assert poot.tree.unflatten(treedef, leaves) == tree


def test_keys_are_sorted_and_the_order_of_insertion_does_not_matter() -> None:
    first, second = {"b": 1, "a": 2}, {"a": 2, "b": 1}
    assert poot.tree.leaves(first) == [2, 1]
    assert poot.tree.structure(first) == poot.tree.structure(second)


def test_none_and_empty_containers_have_no_leaves() -> None:
    assert poot.tree.leaves([None, {}, (), [[]]]) == []
    assert poot.tree.map(lambda x: x + 1, [None, 1, {}]) == [None, 2, {}]


def test_map_reduce_all_transpose() -> None:
    assert poot.tree.map(lambda x, y: x * y, {"a": 2}, {"a": 5}) == {"a": 10}
    assert poot.tree.reduce(lambda x, y: x + y, [1, {"a": 2}], 10) == 13
    assert poot.tree.all([1, {"a": True}]) and not poot.tree.all([1, 0])
    outer = poot.tree.structure([0, 0])
    inner = poot.tree.structure({"a": 0, "b": 0})
    tree = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert poot.tree.transpose(outer, inner, tree) == {"a": [1, 3], "b": [2, 4]}


def test_is_leaf_stops_the_walk() -> None:
    stop = poot.tree.leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple))
    assert stop == [(1, 2), 3]


def test_map_refuses_trees_of_other_forms() -> None:
    with pytest.raises(ValueError):
        poot.tree.map(lambda x, y: x, {"a": 1}, {"b": 1})


class Box:
    """A container registered by hand."""

    def __init__(self, content: Any, label: str) -> None:
        self.content = content
        self.label = label


poot.tree.register_node(
    Box, lambda b: ((b.content,), b.label), lambda label, c: Box(*c, label)
)


@poot.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    """A container by its fields, one of them static."""

    weight: Any
    bias: Any
    activation: str = dataclasses.field(metadata={"static": True}, default="none")


@dataclasses.dataclass
class Scaled:
    """A container whose static field is named when it is registered."""

    x: Any
    power: int


poot.tree.register_dataclass(Scaled, data_fields=["x"], meta_fields=["power"])


def test_registered_node() -> None:
    box = poot.tree.map(lambda x: x + 1, Box([1, 2], "kept"))
    assert box.content == [2, 3] and box.label == "kept"


def test_registered_dataclass_takes_static_fields_into_its_form() -> None:
    layer = Layer(1, 2, "relu")
    assert poot.tree.leaves(layer) == [1, 2]
    other = poot.tree.structure(Layer(1, 2, "tanh"))
    assert poot.tree.structure(layer) != other
    assert poot.tree.map(lambda x: -x, layer) == Layer(-1, -2, "relu")


def test_register_dataclass_refuses_unknown_and_missing_fields() -> None:
    @dataclasses.dataclass
    class Some:
        x: int
        y: int

    with pytest.raises(TypeError, match="has the fields x, y; given as data: x"):
        poot.tree.register_dataclass(Some, data_fields=["x"])
    with pytest.raises(TypeError, match="is no dataclass"):
        poot.tree.register_dataclass(int)


def test_jit_takes_and_returns_registered_containers() -> None:
    calls = []

    @poot.jit
    def forward(layer: Layer, scaled: Scaled) -> Layer:
        calls.append(layer.activation)
        return Layer(scaled.x**scaled.power * layer.weight, layer.bias, "done")

    x = X
    result = forward(Layer(x, 2.0, "relu"), Scaled(x, 2))
    assert isinstance(result, Layer) and result.activation == "done"
    np.testing.assert_array_equal(result.weight, x**3)
    assert float(result.bias) == 2.0
    forward(Layer(x, 3.0, "relu"), Scaled(x, 2))
    forward(Layer(x, 3.0, "relu"), Scaled(x, 3))
    forward(Layer(x, 3.0, "tanh"), Scaled(x, 3))
    assert calls == ["relu", "relu", "tanh"]


def test_jit_identity_of_trees() -> None:
    identity = poot.jit(lambda tree: tree)
    assert list(identity({"b": 1, "a": 2})) == ["a", "b"]
    assert identity({"a": 2, "b": 1})["a"].dtype == np.int32
    assert identity.cache_size == 1
    assert identity([None, {}]) == [None, {}]
    assert identity(None) is None


def test_messages_name_the_path_of_an_argument() -> None:
    @poot.jit
    def step(params: Any, *rest: Any, **options: Any) -> Any:
        return params

    with pytest.raises(ArgumentError, match=r"argument params\['layers'\]\[1\]"):
        step({"layers": [1.0, "text"]})
    with pytest.raises(ArgumentError, match=r"argument args\[1\]\[0\] is a str"):
        step(1.0, ["text"])
    with pytest.raises(ArgumentError, match=r"argument rate\[0\] is a object"):
        step(1.0, rate=[object()])
    with pytest.raises(ArgumentError, match=r"argument params\.bias is a str"):
        step(Layer(1.0, "x"))
    with pytest.raises(DTypeError, match=r"`step`: argument args\[1\]: dtype <U1 is"):
        step(1.0, np.array(["a"]))
    with pytest.raises(DTypeError, match=r"argument params\[1\]: dtype complex128"):
        step((X, np.array([1j])))
