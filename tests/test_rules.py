"""Rule tables, and a walk over all of them for gaps."""

from __future__ import annotations

import pytest

from poot.core.errors import DuplicateRule, MissingRule
from poot.core.op import OPS, Op, RuleTable, primitive_keys, register
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.shape import Reshape
from poot.core.oracle import impl

KEYS = list(primitive_keys())


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_primitive_has_every_rule(key):
    assert key.op.infer is not Op.infer
    assert key in impl


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_op_is_documented(key):
    assert key.op.__doc__


def test_keys_cover_families_by_member():
    names = {str(key) for key in KEYS}
    assert {"Unary[EXP]", "Binary[ADD]", "Compare[EQ]", "Reduce[PROD]"} <= names
    assert {"Select", "Gather", "MatMul", "Fused", "FusedRow"} <= names
    assert len(names) == len(KEYS)


def test_missing_rule_names_primitive_table_and_remedy():
    table = RuleTable("batch")
    with pytest.raises(
        MissingRule,
        match=r"Unary\[EXP\] has no rule in table `batch`; define one with "
        r"@batch\.define\(Unary\[EXP\]\)",
    ):
        table[Unary[UnaryOp.EXP]]


def test_second_rule_names_both():
    table = RuleTable("batch")

    @table.define(Reshape)
    def first_rule():
        pass

    with pytest.raises(DuplicateRule, match=r"Reshape has .* `batch`.*first_rule"):

        @table.define(Reshape)
        def second_rule():
            pass


def test_a_rule_of_a_family_serves_members_without_their_own():
    table = RuleTable("batch")

    @table.define(Binary)
    def family():
        pass

    @table.define(Binary[BinaryOp.ADD])
    def addition():
        pass

    assert table[Binary[BinaryOp.ADD]] is addition
    assert table[Binary[BinaryOp.MUL]] is family
    assert Binary[BinaryOp.MUL] in table
    assert Unary[UnaryOp.EXP] not in table


def test_a_key_is_that_of_its_ops():
    assert Binary(BinaryOp.ADD).key == Binary[BinaryOp.ADD]
    assert str(Binary(BinaryOp.ADD)) == "Binary[ADD]"
    assert Reshape((1,)).key.member is None


def test_two_ops_of_one_name():
    class Impostor(Op):
        name = "reshape"

    with pytest.raises(DuplicateRule, match="two ops are called 'reshape'"):
        register(Impostor)
    assert OPS["reshape"] is Reshape
