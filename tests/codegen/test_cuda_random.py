"""Random groups as CUDA kernels: a few of those that `python -m tests.codegen.random_cuda` goes through by the hundred."""

from __future__ import annotations

import re
from pathlib import Path

from dslc.codegen.cuda.generate import generate
from dslc.ir.graph import Call
from dslc.semantics.library import standard
from tests.codegen.groups import Case, Room, group, needs_compiler
from tests.codegen.random_cuda import attempts, problems
from tests.codegen.random_groups import drawn_group

#: groups of different kinds
SEEDS = (11, 60, 215)


@needs_compiler
def test_random_groups_compute_what_their_equations_say(tmp_path: Path) -> None:
    found = [one for seed in SEEDS for one in attempts(seed)[0]]
    assert len(found) >= len(SEEDS)
    assert list(problems(found, tmp_path)) == []


def test_what_is_drawn_is_the_same_at_all_sizes_and_in_every_process() -> None:
    kinds: set[str] = set()
    for seed in range(60):
        case = drawn_group(seed)
        for sizes in case.sizes:
            one, same = group(case.build, sizes), group(case.build, sizes)
            assert one.outputs == same.outputs
            kinds.update(node.op for node in one.nodes() if isinstance(node, Call))
    # most of what kernels are made of
    assert len(kinds) > 40
    assert {"std.softmax", "std.gather", "std.transpose", "std.matmul", "std.conv", "std.cast", "std.select"} <= kinds


def test_texts_of_more_elements_than_an_int_counts_are_made_of_longer_numbers() -> None:
    """Every position that may be large is an int64: a group of 5e9 elements, and of rows that long."""

    def wide(r: Room) -> object:
        return r.op("softmax", r.op("transpose", r.input(70_000, 70_001), perm=(1, 0)), axis=1)

    def long(r: Room) -> object:
        return r.op("reduce_sum", r.op("exp", r.input(3, 3_000_000_001)), axes=(1,))

    def product(r: Room) -> object:
        return r.op("matmul", r.input(3_000_000_000, 16), r.input(16, 64))

    for build in (wide, long, product):
        text = generate(standard(), group(Case("large", build, ()).build))  # type: ignore[arg-type]
        body = text.text[text.text.rindex("#endif") :]
        narrow = [line.strip() for line in body.splitlines() if " int " in f" {line.strip()}" and "k_rank" not in line]
        # what is narrow is a number of threads, or of lanes that a vector's rest has
        assert all(
            "k_team" in line or re.fullmatch(r"const int n\d+ = \(int\)\((\w+)_end - \1\);", line) for line in narrow
        ), narrow
        assert all(launch.grid[0] < 2**31 for launch in text.launches if isinstance(launch.grid[0], int))
