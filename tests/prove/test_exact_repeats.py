"""The exact prover does the same whatever the order is in which Python keeps sets, and gives up at the same place."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from dslc.ir.scalar import dimension
from dslc.prove.exact import terms
from dslc.prove.exact.terms import Effort, Unsolved
from dslc.prove.run.provers import exact_verdict
from dslc.semantics.library import Rules

_PROGRAM = """
import hashlib
from dslc.analysis import isl
from dslc.prove.exact import compare
from dslc.prove.exact.terms import Algebra, Effort
from dslc.prove.instances.exploration import instance_set
from dslc.semantics.library import load

seen, steps = hashlib.sha256(), []
normal, matrices, check = Algebra.normal, isl._set, Effort.check
def counted(self):
    steps.append(None)
    check(self)
def asked(variables, constraints):
    seen.update(str((variables, constraints)).encode())
    return matrices(variables, constraints)
def noted(self, terms):
    found = normal(self, terms)
    seen.update("".join(f"{t.coefficient} {t.atoms} {t.map}" for t in found).encode())
    return found
Algebra.normal, isl._set, Effort.check = noted, asked, counted
rules = load("std")
for name in ("std.merge_matmuls", "std.pad_into_max_pool"):
    for instance in instance_set(rules, rules.substitutions[name]).instances[:3]:
        seen.update(f"{instance.text} {compare(instance.left, instance.right, instance.conditions)}".encode())
print(len(steps), seen.hexdigest())
"""


def test_normal_forms_and_steps_do_not_depend_on_the_hash_seed() -> None:
    outputs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert int(outputs[0].split()[0]) > 100


def test_a_deadline_is_a_number_of_steps() -> None:
    def steps() -> int:
        effort, count = Effort(0.05), 0
        with pytest.raises(Unsolved, match="time is up"):
            while True:
                effort.check()
                count += 1
        return count

    assert steps() == steps() > 10


def test_steps_are_counted_in_the_outer_deadline_too() -> None:
    """All comparisons of a rule share one: its steps do not depend on how they are divided among these."""
    outer = Effort(0.1)

    def steps(effort: Effort) -> int:
        count = 0
        with pytest.raises(Unsolved, match="time is up"):
            while True:
                effort.check()
                count += 1
        return count

    first = steps(Effort(0.04, outer)) + steps(Effort(0.04, outer).part(0.02))
    assert not outer.is_over
    Effort(1.0, outer).spend(0.01)
    last = steps(Effort(1.0, outer))
    assert outer.is_over
    assert (first, first + last) == (120, pytest.approx(180, abs=4))
    assert steps(Effort(1.0, outer)) == 0


def test_a_rule_is_given_up_at_the_same_place_however_fast_the_machine_is(
    std: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = terms.time.process_time
    # of its instances the last ones need more
    rule = std.substitutions["std.reshape_of_reshape"]

    def asked(speed: float) -> tuple[str, str]:
        monkeypatch.setattr(terms.time, "process_time", lambda: clock() / speed)
        found = exact_verdict(std, rule, 0.05)
        return found.answer, found.reason

    fast, slow = asked(4.0), asked(0.7)
    assert fast == slow
    assert fast[0] == "unknown"


def test_equal_scalars_are_one_object_and_gone_when_nobody_holds_them() -> None:
    from dslc.ir.fold import simplify
    from dslc.ir.scalar import Scalar, apply, num

    simplify.cache_clear()
    size = len(Scalar._pool)
    made = apply("+", dimension("a size of this test"), num(123457))
    assert apply("+", dimension("a size of this test"), num(123457)) is made
    assert made.integral and not made.reads
    del made
    simplify.cache_clear()  # it holds what was made last, so that it need not be made again
    assert len(Scalar._pool) == size


def test_what_takes_far_longer_than_a_step_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that asks isl about hundreds of terms takes seconds: sixty of them are not waited for."""
    effort = Effort(1.0)
    effort.check_clock()
    now = time.process_time()
    monkeypatch.setattr(time, "process_time", lambda: now + 60)
    effort.check()
    with pytest.raises(Unsolved, match="time is up"):
        effort.check_clock()
