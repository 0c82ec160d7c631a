"""Which groups there are generated kernels for, and their texts: the generator behind plans and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dslc.cuda.planning import Generable
from dslc.ir.graph import Graph
from dslc.semantics.apply import rules_cache
from dslc.semantics.library import Rules


def texts(rules: Rules) -> Callable[[Graph], Any]:
    """The text of a group's kernel: of a product by its most promising variant, which may use tensor cores or share sums between
    blocks, else by the one that is taken where nothing is said; raises NotGenerated."""
    from dslc.codegen.cuda.generate import generate, variants

    known: dict[Graph, Any] = rules_cache(rules, "cuda texts")

    def text(program: Graph) -> Any:
        if program not in known:
            found = generate(rules, program)
            if any(launch.form == "products" for launch in found.launches):
                found = generate(rules, program, variants(rules, program)[0])
            known[program] = found
        return known[program]

    return text


def generable(rules: Rules) -> Generable:
    """Whether there is a kernel for a group, and the memory that it wants beside its tensors."""
    from dslc.codegen.cuda.text import at
    from dslc.codegen.text import NotGenerated

    text = texts(rules)

    def scratch(program: Graph) -> tuple[int, ...] | None:
        try:
            return tuple(at(size, {}) for size in text(program).scratch)
        except NotGenerated:
            return None

    return scratch


__all__ = ["generable", "texts"]
