"""Values of options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence

import click


def seconds_of(text: str, option: str) -> float:
    """`90`, `90s`, `1.5m`, `2h` as seconds; raises click.BadParameter."""
    from dslc.search.settings import seconds_of as parsed

    try:
        return parsed(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint=option) from None


def bindings(texts: Sequence[str], several: bool = True) -> list[dict[str, int]]:
    """`["N=1,8", "S=64"]` as one dictionary for each position of the lists; a single size goes with all of them.

    Raises click.BadParameter for what is no `NAME=N`, and for lists of different lengths.
    """
    from dslc.search.settings import each_binding

    sizes: dict[str, int | Sequence[int]] = {}
    for text in texts:
        name, equals, values = text.rpartition("=")
        try:
            numbers = [int(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not equals or not name or not numbers or min(numbers) < 0:
            raise click.BadParameter(f"{text!r} is no NAME=N", param_hint="--bind")
        sizes[name.strip()] = numbers
    try:
        out = each_binding(sizes)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--bind") from None
    if len(out) > 1 and not several:
        raise click.BadParameter("several sizes are for `dslc optimize`; give one here", param_hint="--bind")
    return out
