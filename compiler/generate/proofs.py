"""The proofs of a generation's rules: in worker processes, many at once, each prover with a limit of processor time."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dslc.errors import DslcError, SourceText
from dslc.generate.general.naming import described, named
from dslc.generate.general.rules import GeneralRule, definition, names_in, operators_of, rule_text, short_names
from dslc.generate.general.text import Writer, declared, is_default, output_names, tensor_names
from dslc.generate.settings import GenerationSettings, Stages
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Term, inputs, show_attribute, values
from dslc.ir.dtype import DType
from dslc.ir.graph import input_value
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import keep_verdicts, own_evidence
from dslc.prove.run.conclusion import conclude
from dslc.prove.run.worker import Task
from dslc.prove.run.workers import Workers
from dslc.prove.verdict import PROVERS, RuleVerdict, Verdict
from dslc.semantics.composites import spelled_out
from dslc.semantics.library import Rules
from dslc.syntax.printer import format_source
from dslc.version import __version__

# ---- The proofs of a generation's rules: in worker processes, many at once, each prover with a limit of proc--------

LIMIT = 4.0  #: seconds, counted in steps, after which the exact prover stops
SMALL = 3  #: operators of a rule that gets all of that; larger ones, of which there are most, get half
BACKSTOP = 4.0  #: how many times as long, by its processor time, a process may take before it is ended


class Proofs:
    """Proves rules that are in no file yet. Use it as a context manager: leaving it ends the workers."""

    def __init__(
        self, rules: Rules, workers: int, seed: int = 0, cache: Path | None = None, limit: float = LIMIT
    ) -> None:
        """`cache`: a folder of what was decided, for a run that goes on where it was interrupted."""
        self._rules, self._seed, self._limit = rules, seed, limit
        self._workers = Workers(rules, workers, BACKSTOP * limit)
        self._number = 0
        self._cache = own_evidence(cache) if cache else None
        #: rules that were given to the provers, by the name of their task
        self._asked: dict[str, GeneralRule] = {}
        #: the rules of `_asked`; the verdicts of those that are done
        self._begun: set[GeneralRule] = set()
        self._done: dict[GeneralRule, RuleVerdict] = {}

    def __enter__(self) -> Proofs:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def begin(self, rule: GeneralRule) -> None:
        """Gives a rule to the provers and goes on; `of` has the verdict later. Without workers nothing happens before that."""
        if self._workers.parallel and rule not in self._begun and not self._known(rule):
            self._ask(rule)

    def look(self) -> None:
        """Takes what the provers have answered meanwhile, and gives them more to do."""
        self._answers(wait=False)

    def of(
        self,
        found: Sequence[GeneralRule],
        out: dict[GeneralRule, RuleVerdict],
        told: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Puts the verdict of every rule into `out`; `told` is called with the number of those that are done, and may end it."""
        for rule in found:
            if rule not in self._begun:
                if known := self._known(rule):
                    out[rule] = known
                else:
                    self._ask(rule)
        while left := [rule for rule in found if rule not in out]:
            if self._done.keys().isdisjoint(left):
                self._answers(wait=True)
            for rule in left:
                if rule in self._done:
                    out[rule] = self._done.pop(rule)
                    self._begun.discard(rule)
                    told(len(out))

    def _ask(self, rule: GeneralRule) -> None:
        self._number += 1
        name = f"candidate_{self._number}"
        operators = names_in(rule)
        text = rule_text(self._rules, rule, name, operators)
        short = tuple(operators.items())
        seconds = self._limit if rule.size <= SMALL else self._limit / 2
        task = Task(name, PROVERS, self._seed, seconds, small=False, text=text, operators=short)
        self._asked[name] = rule
        self._begun.add(rule)
        self._workers.submit([task])

    def _answers(self, wait: bool) -> None:
        for task, answered in self._workers.answers(wait):
            rule = self._asked.pop(task.rule)
            self._done[rule] = self._concluded(rule, answered)
            if self._cache:
                self._cache.put([self._done[rule]])

    def _known(self, rule: GeneralRule) -> RuleVerdict | None:
        sub = definition(self._rules, rule)
        return self._cache.get(sub.name, rule_digest(self._rules, sub)) if self._cache else None

    def _concluded(self, rule: GeneralRule, verdicts: Sequence[Verdict]) -> RuleVerdict:
        sub = definition(self._rules, rule)
        try:
            return conclude(self._rules, sub, list(verdicts))
        except DslcError as problem:
            return RuleVerdict(sub.name, "undecided", tuple(verdicts), rule_digest(self._rules, sub), str(problem))


def write_proofs(path: Path, names: Mapping[GeneralRule, str], verdicts: Mapping[GeneralRule, RuleVerdict]) -> str:
    """Keeps the verdicts of a written library in the `dslc.lock` beside it, so that nothing is proved again; a note where it cannot.

    Args:
        names: of the rules in the file.
    """
    return keep_verdicts(path, {names[rule]: verdict for rule, verdict in verdicts.items()}) if verdicts else ""


# ---- The library that a generation writes: formatted, documented, with a test for each rule and the statisti--------

TESTS = 1500  #: rules that have a test each; of more, every n-th
WIDTH = 116  #: characters of a line


def library_text(
    rules: Rules,
    found: Sequence[GeneralRule],
    header: Sequence[str],
    statuses: Mapping[GeneralRule, str],
    folder: Path | None = None,
) -> str:
    """The text of a `.rules` file.

    Args:
        header: lines of the comment on top.
        statuses: what the provers said of each rule; those that are not proved for all shapes are tagged.
        folder: where the file will be; operators defined in files beside it are imported from there.
    """
    operators = short_names([item.op for item in operators_of(found)])
    lines = ["dslc 1", *(f"# {line}".rstrip() for line in header), ""]
    lines += _imports(rules, operators, folder)
    names = named(found)
    in_order = sorted(found, key=lambda rule: (rule.size, names[rule]))
    lines.append(f"export {', '.join(names[rule] for rule in in_order)}" if in_order else "")
    groups: dict[int, list[GeneralRule]] = defaultdict(list)
    for rule in in_order:
        groups[rule.size].append(rule)
    every = max(1, -(-len(in_order) // TESTS))
    for size, group in groups.items():
        lines += [
            "",
            f"# ---- {size} operator{'s' * (size != 1)}: {len(group)} rule{'s' * (len(group) != 1)} {'-' * 60}",
        ]
        for rule in group:
            tags = ", ".join(["generated", *(["bounded"] if statuses.get(rule) == "bounded" else [])])
            lines += ["", rule_text(rules, rule, names[rule], operators, described(rule), tags)]
    for k, rule in enumerate(in_order):
        if k % every == 0 and changes_something(rules, rule):
            lines += ["", fires_text(rules, rule, names[rule], operators)]
    for size, group in groups.items():
        plural = "s" * (size != 1)
        lines += ["", f"ruleset size_{size} {{", f'"""Rules with {size} operator{plural} on their larger side."""',
                  f"include {', '.join(names[rule] for rule in group)}", "}"]  # fmt: skip
    return format_source(SourceText("generated.rules", "\n".join(lines) + "\n"))


def _imports(rules: Rules, operators: Mapping[str, str], folder: Path | None) -> list[str]:
    """One line for each file that operators come from; whole libraries where two operators have one name."""
    modules: dict[str, list[str]] = defaultdict(list)
    for op, short in operators.items():
        module = rules.operators[op].module
        # a file may be a library of its own
        path = module.library if module.name == f"{module.library}.{module.library}" else module.name
        place = module.place
        if folder and place.parent == folder.resolve():
            path = f".{place.stem}"
        if "." in short:
            modules.setdefault(module.library, [])
        else:
            modules[path].append(short)
    out = []
    for path, names in sorted(modules.items()):
        out.append(f"import {path} ({', '.join(sorted(names))})" if names else f"import {path} as {path}")
    return out


def changes_something(rules: Rules, rule: GeneralRule) -> bool:
    """Return whether the sides are different programs where operators that are spelled out in others are."""
    feeds = {term: input_value(f"x{term.index}", term.type.tensor) for term in inputs(rule.candidate.roots)}
    sides = (rule.candidate.sources, rule.candidate.targets)
    left, right = (spelled_out(rules, values(rules, side, feeds)) for side in sides)
    return left != right


def fires_text(rules: Rules, rule: GeneralRule, name: str, operators: Mapping[str, str]) -> str:
    """A test in which the rule applies, at the sizes at which it was found."""
    names = tensor_names(rule.candidate)

    def attribute(term: Term, name: str, value: Any) -> str | None:
        assert term.item
        if isinstance(value, DType):
            return str(value)
        return None if is_default(declared(rules, term.item, name), value) else show_attribute(value)

    writer = Writer(rules, names, operators, attribute)
    given = ", ".join(
        f"{label}: {term.type.dtype}[{', '.join(map(str, term.type.shape))}]" for term, label in names.items()
    )
    binds = "\n".join(writer.statements(rule.candidate.sources, output_names(rule.candidate)))
    return "\n".join([f"test {name} {{", *([f"given {given}"] if given else []), f"fires {{ {binds} }}", "}"])


def header_of(
    rules: Rules, families: Sequence[Family], settings: GenerationSettings, stages: Stages, seconds: float
) -> list[str]:
    """The comment on top: where the rules come from, what was tried, how many were left at each stage."""
    operators = sorted({item.op for family in families for item in (*family.items, *(c for c, _ in family.constants))})
    lines = [
        f"Found and proved by `dslc generate` {__version__}: every rule between graphs of at most {settings.max_operators} operators",
        *textwrap.wrap(f"over {', '.join(operators)}.", WIDTH),
    ]
    for family in families:
        shown = ", ".join(f"{n} of {type}" for type, n in Counter(map(str, family.inputs)).items())
        lines += textwrap.wrap(
            f"Inputs ({family.name}): {shown}; {len(family.constants)} constants; seed {settings.seed}.", WIDTH
        )
    for op in operators:
        for trait, other in rules.traits_of(op).named.items():
            if trait == "stand_in":
                lines.append(f"{op} was enumerated as {other}, which hides less; the rules are proved for {op} itself.")
            elif trait == "operand_of":
                lines.append(f"{op} was applied to inputs only.")
    lines += textwrap.wrap(f"Counts: {', '.join(f'{name} {n}' for name, n in stages.counts.items())}.", WIDTH)
    reasons = Counter(reason.partition(":")[0] for _, reason in stages.left_out)
    if reasons:
        lines += textwrap.wrap(
            f"Left out: {', '.join(f'{n} {reason}' for reason, n in sorted(reasons.items()))}.", WIDTH
        )
    lines.append(f"Time: {seconds:.0f} s, {stages.peak_memory / (1 << 20):.0f} MiB in the largest process.")
    return lines
