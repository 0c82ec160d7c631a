"""The process that proves: it loads the rules once, then answers for one rule after the other (run as `python -m`).

The first message says which files to load; the answer is the digest of their texts. Then each task is answered by a verdict for every
prover, as soon as it is known, and by None at its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path

from dslc.errors import SourceText
from dslc.processes.child import Asker
from dslc.prove.garbage import gc_paused
from dslc.prove.run.provers import Definition, in_turn, prover_verdict
from dslc.prove.verdict import ProverName, Types, Verdict
from dslc.records import record
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.parser import parse


@record
class Task:
    """One rule and the provers that are to be asked about it, in this order."""

    rule: str
    provers: tuple[ProverName, ...]
    seed: int = 0
    #: about so long, counted in steps, the exact prover may take
    seconds: float = inf
    #: look for a small counterexample of what is wrong
    small: bool = True
    #: only look for guards, with the first prover's name: the rule is known to be wrong
    guards: bool = False
    #: the rule itself where it is in no file, and its operators: qualified names, each with the one that the text has for it
    text: str = ""
    operators: tuple[tuple[str, str], ...] = ()


def definition_of(rules: Rules, name: str) -> Definition:
    """The rule or law of a qualified name; raises KeyError."""
    return rules.substitutions.get(name) or rules.laws[name]


def answered(rules: Rules, task: Task) -> Iterator[Verdict]:
    """The verdicts of one task, each as soon as it is known; see `in_turn`."""
    return in_turn(task.provers, partial(_answer, rules, task))


def _answer(rules: Rules, task: Task, prover: ProverName, without: Collection[Types]) -> Verdict:
    definition = written(rules, task.text, dict(task.operators)) if task.text else definition_of(rules, task.rule)
    if task.guards and isinstance(definition, SubstitutionDef):
        from dslc.prove.guards import guards_verdict

        return guards_verdict(rules, definition, task.seed)
    return prover_verdict(
        rules, definition, prover, seed=task.seed, seconds=task.seconds, without=without, small=task.small
    )


def written(rules: Rules, text: str, operators: Mapping[str, str], library: str = "generated") -> SubstitutionDef:
    """A substitution as the loader would give it.

    Args:
        text: one substitution of the language, without the line `dslc 1`.
        operators: qualified names, each with the name that the text has for it.

    Raises:
        DslcError: where the text does not parse.
    """
    file = parse(SourceText(f"{library}.rules", "dslc 1\n" + text))
    module = Module(f"{library}.{library}", library, file)
    for op, short in operators.items():
        module.names[short] = rules.operators[op]
    (item,) = file.items
    assert isinstance(item, t.Substitution)
    return SubstitutionDef(f"{library}.{item.name}", item, module)


def main() -> None:
    """Serves until the other side closes its end."""
    asker = Asker()
    messages = iter(asker)
    places = list(map(Path, next(messages, ())))
    rules = load_many([place for place in places if not place.is_dir()], [place for place in places if place.is_dir()])
    asker.answer(rules.digest)
    with gc_paused():
        for task in messages:
            for verdict in answered(rules, task):
                asker.answer(verdict)
            asker.answer(None)


if __name__ == "__main__":
    main()
