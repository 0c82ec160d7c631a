"""A small interpreter of TextMate grammars: `match`, `captures`, `begin` and `end`, and `include` of the grammar's own parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

Pattern = Mapping[str, Any]


class Colours:
    """Colours texts line by line, as editors do: of all patterns the one that begins first, and of these the first one."""

    def __init__(self, grammar: Mapping[str, Any]) -> None:
        self._grammar = grammar
        self._patterns = list(self._flat(grammar["patterns"]))

    def _flat(self, patterns: list[Pattern]) -> Iterator[Pattern]:
        for pattern in patterns:
            if "include" in pattern:
                yield from self._flat(self._grammar["repository"][pattern["include"].removeprefix("#")]["patterns"])
            else:
                yield pattern

    def of(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Line (from 1), characters and scope of everything that is coloured."""
        inside: Pattern | None = None
        for number, line in enumerate(text.split("\n"), 1):
            at = 0
            while at <= len(line):
                if inside is not None:
                    end = _regex(inside["end"]).search(line, at)
                    stop = len(line) if end is None else end.end()
                    yield number, line[at:stop], inside["name"]
                    at, inside = stop, (inside if end is None else None)
                    if end is None:
                        break
                    continue
                found = [
                    (m, p)
                    for p in self._patterns
                    if (m := _regex(p.get("match") or p["begin"]).search(line, at)) is not None
                ]
                if not found:
                    break
                match, pattern = min(found, key=lambda one: one[0].start())
                if "begin" in pattern:
                    yield number, match[0], pattern["name"]
                    inside = pattern
                for group, capture in pattern.get("captures", {}).items() if "match" in pattern else ():
                    if match[int(group)] is not None:
                        yield number, match[int(group)], capture["name"]
                if "match" in pattern and "name" in pattern:
                    yield number, match[0], pattern["name"]
                at = match.end() if match.end() > at or match[0] else at + 1
                if at == len(line) and inside is None:
                    break


@cache
def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text)
