"""The terms of a level that are equations and don't follow from smaller ones: found for parts of a level, one by one.

A part holds the terms of some fingerprints, so that terms of one value are in one part, and rewriting leads from a part into no
other. A part is settled by a pure function of what is known of the levels below and of the part's terms: in this process or on a
worker, in any order, and in bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dslc.generate.enumeration.fingerprint import mix
from dslc.generate.enumeration.rewrites import Applications, LowerLevels, Rewriting, components
from dslc.generate.terms.term import Equation
from dslc.interpret.domain import Array

PART = 1 << 21  #: terms of a part, about
PAIRS = 1 << 21  #: connected pairs of terms that are held at once


@dataclass(frozen=True)
class LevelPart:
    """Some terms of a level: all that have certain fingerprints, in order."""

    hashes: Array
    terms: Applications


@dataclass(frozen=True)
class OpenTerms:
    """The rest of a part, or of all parts.

    `at`: the terms' places; `left`, the other side of each: a row of the table, or -1 - k for the k-th of these; `groups`: for terms
    that rewriting connects the number of one of them, -1 for settled ones.
    """

    classes: int
    equations: int
    at: Array
    left: Array
    groups: Array

    @property
    def heads(self) -> Array:
        """True where a term is compared with itself."""
        heads: Array = self.left == -1 - np.arange(len(self.left))
        return heads


def part_of(hashes: Array, parts: int) -> Array:
    """The part of each fingerprint."""
    return (mix(hashes) % np.uint64(parts)).astype(np.int16)


def settled(below: LowerLevels, part: LevelPart) -> OpenTerms:
    """The terms that do not follow at one step from the smallest equations."""
    left = below.known.find(part.hashes)
    new = np.flatnonzero(left < 0)
    _, first, inverse = np.unique(part.hashes[new], return_index=True, return_inverse=True)
    left[new] = -1 - new[first][inverse]
    equations = np.flatnonzero(left != -1 - np.arange(len(left)))
    # only what has the value of another term is looked at, in whose numbers most of this is
    members = np.union1d(equations, -1 - left[equations][left[equations] < 0])
    own = _within(left[members], members)
    mine = Applications(part.terms.item[members], part.terms.output[members], part.terms.args[members])
    wanted, rewriting, groups = np.searchsorted(members, equations), Rewriting(below, mine), np.arange(len(members))
    # most follows from all but those of the level just below; of which there are most
    for rules in below.rules[:-1]:
        wanted = wanted[groups[wanted] >= 0]
        groups = grouped(below, rewriting, rules, wanted, part.hashes[members], own, None, groups)
    kept = groups >= 0
    kept[-1 - own[kept & (own < 0)]] = True
    at = np.flatnonzero(kept)
    # the first place of each one's group
    _, firsts, group = np.unique(groups[at], return_index=True, return_inverse=True)
    places = np.where(groups[at] < 0, -1, firsts[group])
    return OpenTerms(len(first), len(equations), members[at], _within(own[at], at), places)


def further(below: LowerLevels, level: Applications, hashes: Array, left: OpenTerms) -> OpenTerms:
    """The rest that does not follow from the equations of the level just below either, as far as the rest itself shows it."""
    if not below.rules:
        return left
    equations = np.flatnonzero((left.groups >= 0) & ~left.heads)
    groups = grouped(below, Rewriting(below, level), below.rules[-1], equations, hashes, left.left, None, left.groups)
    return replace(left, groups=groups)


def together(parts: Sequence[tuple[Array, OpenTerms]]) -> OpenTerms:
    """The rest of all parts; with each the positions of its terms in the level."""
    places = np.concatenate([positions[part.at] for positions, part in parts])
    order = np.argsort(places, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    left, groups, start = [], [], 0
    for _, part in parts:
        own = part.left.copy()
        own[own < 0] = -1 - rank[start - 1 - own[own < 0]]
        left.append(own)
        groups.append(np.where(part.groups < 0, -1, rank[start + part.groups]))
        start += len(part.at)
    classes, equations = sum(part.classes for _, part in parts), sum(part.equations for _, part in parts)
    return OpenTerms(classes, equations, places[order], np.concatenate(left)[order], np.concatenate(groups)[order])


def _within(left: Array, members: Array) -> Array:
    """The sides of some members, with heads numbered within them."""
    own = left.copy()
    own[own < 0] = -1 - np.searchsorted(members, -1 - own[own < 0])
    return own


def grouped(
    below: LowerLevels, rewriting: Rewriting, rules: Sequence[Equation], equations: Array, hashes: Array, left: Array,
    ranks: tuple[Array, Array] | None, groups: Array | None = None,
) -> Array:  # fmt: skip
    """For each position the group of terms that rewriting connects, -1 for groups that are settled.

    These are connected with the other side of their class. `ranks`: of positions and of rules; a rule rewrites terms of a higher rank
    only. `groups`: of an earlier call.
    """
    before = np.arange(len(hashes)) if groups is None else groups
    follows = before < 0
    groups = np.where(follows, np.arange(len(hashes)), before)
    pairs: list[Array] = []
    held = 0
    for number, positions, rows, others in rewriting.steps(rules, equations):
        if ranks is not None:
            allowed = ranks[0][positions] > ranks[1][number]
            positions, rows, others = positions[allowed], rows[allowed], others[allowed]
        lower = (rows >= 0) & (left[positions] >= 0)
        lower[lower] = below.classes[rows[lower]] == left[positions[lower]]
        follows[positions[lower]] = True
        beside = others >= 0
        beside[beside] = (hashes[others[beside]] == hashes[positions[beside]]) & (others[beside] != positions[beside])
        if beside.any():
            pairs.append(np.stack([positions[beside], others[beside]]))
            held += pairs[-1].shape[1]
        if held > PAIRS:
            groups, pairs, held = _connected(groups, pairs), [], 0
    groups = _connected(groups, pairs)
    done = np.zeros(len(hashes), dtype=bool)
    done[groups[follows]] = True
    done[groups[-1 - left[left < 0]]] = True
    return np.where(done[groups], -1, groups)


def _connected(groups: Array, pairs: Sequence[Array]) -> Array:
    """The smallest member of each one's group, where `pairs` [2, pairs] are connected as well."""
    if not pairs:
        return groups
    left, right = np.concatenate(pairs, axis=1)
    return components(len(groups), groups[left], groups[right])[groups]
