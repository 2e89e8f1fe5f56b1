"""Kinds of the words that the host writes at each call, for `poot.jit(slots=...)`."""

from poot.interpreters.slot_kinds import Kind, Pos, SlotMap, Token, WriteMap

__all__ = ["Kind", "Pos", "SlotMap", "Token", "WriteMap"]
