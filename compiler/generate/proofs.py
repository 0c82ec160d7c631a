"""The proofs of a generation's rules: in worker processes, many at once, each prover with a limit of processor time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from dslc.errors import DslcError
from dslc.generate.general.rules import GeneralRule, definition, names_in, rule_text
from dslc.prove.known.digest import rule_digest
from dslc.prove.known.evidence import own_evidence
from dslc.prove.known.lock import LOCK, read_lock, write_lock
from dslc.prove.known.resting import current
from dslc.prove.run.concluding import conclude
from dslc.prove.run.worker import Task
from dslc.prove.run.workers import Workers
from dslc.prove.verdict import ProverName, RuleVerdict, Verdict
from dslc.semantics.library import Rules, load_many

LIMIT = 4.0  #: seconds, counted in steps, after which the exact prover stops
SMALL = 3  #: operators of a rule that gets all of that; larger ones, of which there are most, get half
BACKSTOP = 4.0  #: how many times as long, by its processor time, a process may take before it is ended
LAWS = 50  #: milliseconds for the laws, for each second of the limit

#: a cheap refutation first; the laws are asked only where the exact prover is undecided
_FIRST: tuple[ProverName, ...] = ("field", "exact")
_SECOND: tuple[ProverName, ...] = ("axioms",)


class Proofs:
    """Proves rules that are in no file yet. Use it as a context manager: leaving it ends the workers."""

    def __init__(
        self, rules: Rules, workers: int, seed: int = 0, cache: Path | None = None, limit: float = LIMIT
    ) -> None:
        """`cache`: a folder of what was decided, for a run that goes on where it was interrupted."""
        self._rules, self._seed, self._limit = rules, seed, limit
        self._workers = Workers(rules, workers, BACKSTOP * limit)
        self._number = 0
        self._cache = None if cache is None else own_evidence(cache)
        #: rules that were given to the provers, by the name of their task, and what has been answered of each
        self._asked: dict[str, GeneralRule] = {}
        self._answered: dict[str, list[Verdict]] = {}
        #: the rules of `_asked`; the verdicts of those that are done
        self._begun: set[GeneralRule] = set()
        self._done: dict[GeneralRule, RuleVerdict] = {}

    def __enter__(self) -> Proofs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._workers.__exit__(kind, error, at)

    def begin(self, rule: GeneralRule) -> None:
        """Gives a rule to the provers and goes on; `of` has the verdict later. Without workers nothing happens before that."""
        if self._workers.parallel and rule not in self._begun and self._known(rule) is None:
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
            known = None if rule in self._begun else self._known(rule)
            if known is not None:
                out[rule] = known
        left = [rule for rule in found if rule not in out]
        for rule in left:
            if rule not in self._begun:
                self._ask(rule)
        while left:
            for rule in left:
                if rule in self._done:
                    out[rule] = self._done.pop(rule)
                    self._begun.discard(rule)
                    told(len(out))
            left = [rule for rule in left if rule not in out]
            if left:
                self._answers(wait=True)

    def _ask(self, rule: GeneralRule) -> None:
        self._number += 1
        name = f"candidate_{self._number}"
        operators = names_in(rule)
        text = rule_text(self._rules, rule, name, operators)
        short = tuple(operators.items())
        seconds = self._limit if rule.size <= SMALL else self._limit / 2
        task = Task(name, _FIRST, self._seed, int(self._limit * LAWS), seconds, small=False, text=text, operators=short)
        self._asked[name] = rule
        self._begun.add(rule)
        self._workers.submit([task])

    def _answers(self, wait: bool) -> None:
        for task, answered in self._workers.answers(wait):
            self._take(task, answered)

    def _take(self, task: Task, answered: Sequence[Verdict]) -> None:
        rule = self._asked[task.rule]
        verdicts = self._answered.setdefault(task.rule, [])
        verdicts.extend(answered)
        if _open(verdicts) and not any(one.prover in _SECOND for one in verdicts):
            self._workers.submit([replace(task, provers=_SECOND)])
            return
        del self._asked[task.rule], self._answered[task.rule]
        self._done[rule] = self._concluded(rule, verdicts)
        if self._cache is not None:
            self._cache.put([self._done[rule]])

    def _known(self, rule: GeneralRule) -> RuleVerdict | None:
        sub = definition(self._rules, rule)
        found = None if self._cache is None else self._cache.get(sub.name, rule_digest(self._rules, sub))
        return found if found is not None and current(self._rules, found) else None

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
    rules = load_many([path])
    mine = [
        sub for sub in rules.substitutions.values() if Path(sub.module.file.source.path).resolve() == path.resolve()
    ]
    own = {sub.syntax.name: sub for sub in mine}
    new = {}
    for rule, verdict in verdicts.items():
        sub = own[names[rule]]
        new[sub.name] = replace(verdict, rule=sub.name, digest=rule_digest(rules, sub))
    if not new:
        return ""
    beside = path.resolve().parent / LOCK
    library = next(iter(own.values())).module.library
    others = {name: one for name, one in read_lock(beside).verdicts.items() if name.rpartition(".")[0] != library}
    return write_lock(beside, {**others, **new})


def _open(verdicts: Sequence[Verdict]) -> bool:
    """Return whether neither a difference was found nor a proof."""
    if any(one.answer == "differs" for one in verdicts):
        return False
    return not any(one.prover == "exact" and one.answer == "equal" for one in verdicts)
