"""Variants: what may be chosen for a kernel without changing what it computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """Schedule of a loop nest.

    width: elements of a vector (1: no vectors). unroll: accumulators of a reduction over lanes. vectors: vectors at a time where a
    reduction runs inside the lanes' loop; block: positions of another outer loop that are computed with it. lane: the loop that is
    spread over lanes, by rank of its estimate (None: the best). fuse: whether parts share stages. read_outputs: whether what
    needs an output reads it. contract: whether a product may go into a sum without being rounded, which may give other numbers
    where a difference is next to nothing. panels: whether a factor of a product that many positions share is brought into panels of
    `vectors` vectors first. windows: whether a sum over windows of products is a product of matrices first.
    padded: whether what products read beyond the ends of an operand is written out. filtered: whether products between transforms are
    computed with these, some rows at a time. keep: whether what is computed and read many times is kept. form: by which substitution
    the group was written in another way before, and its choice.
    """

    width: int = 16
    unroll: int = 4
    vectors: int = 2
    block: int = 4
    lane: int | None = None
    fuse: bool = True
    read_outputs: bool = False
    contract: bool = True
    panels: bool = False
    windows: bool = False
    padded: bool = False
    filtered: bool = False
    apart: bool = False
    keep: bool = False
    form: str = ""

    @property
    def panel(self) -> int:
        """Elements of a row of a panel."""
        return self.width * self.vectors
