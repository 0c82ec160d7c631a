"""Foreign rules in, proved or left out: each rule of a file ends up in the library, or in the report with the reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dslc.foreign.counterparts import KNOWN
from dslc.foreign.deciding import Deciding
from dslc.foreign.duplicates import Seen
from dslc.foreign.keeping import KeptVerdicts
from dslc.foreign.merging import documented, merged
from dslc.foreign.misfit import misfit
from dslc.foreign.naming import described, names_of
from dslc.foreign.outcome import Import, ImportedRule, Outcome, Pending
from dslc.foreign.parallel import AxisOrder, axis_order, undistributed
from dslc.foreign.rule import ForeignRule
from dslc.foreign.shapes import Clash, UnboundTensor
from dslc.foreign.translate import tensor_names, translations
from dslc.foreign.typing import UnknownOperator

WIDTH = 110  #: characters of a line of documentation

#: told of what is done: how many rules are decided, how many there are, and how many have which outcome
Progress = Callable[[int, int, Counter[Outcome]], None]


def import_rules(
    rules: Sequence[ForeignRule],
    form: str,
    out: Path,
    workers: int = 2,
    limit: float = 30.0,
    progress: Progress | None = None,
    guards: bool = True,
    axes: AxisOrder | None = None,
    *,
    origin: str = "",
    cache: Path | None = None,
    budget: float | None = None,
    library: str = "",
) -> Import:
    """Decides every rule, or as many as the time allows: the others are `open`.

    Args:
        form: the format's name.
        out: the file that is going to be written.
        workers: processes that prove; 0 for this one.
        limit: seconds for one prover and one rule.
        guards: whether conditions are looked for under which a wrong rule is right (seconds for each wrong one).
        axes: how FlexFlow's parallel dimensions are counted; None: as more rules of the file fit.
        origin: the file's name, for the documentation of the rules.
        cache: a folder of what was decided, for the next run; it is written as soon as something is.
        budget: seconds after which nothing more is begun.
        library: the library's name, the file's where none is given.

    Raises:
        DslcError: E0519 where dslc's own libraries are changed in the meantime.
    """
    result = Import()
    ends = None if budget is None else time.monotonic() + budget
    counts: Counter[Outcome] = Counter()
    told = 0

    def tell() -> None:
        nonlocal told
        counts.update(rule.outcome for rule in result.rules[told:])
        told = len(result.rules)
        if progress is not None:
            progress(told, len(rules), counts)

    order = axes or axis_order(rules)
    plain = [undistributed(rule, order) for rule in rules]
    names = names_of([rule for rule, _ in plain])
    reader = _Reader(names, result, origin or f"a {form} file")
    with Deciding(workers, limit, KeptVerdicts(cache, limit), guards, ends, library or out.stem) as deciding:
        for rule in deciding.run(reader.pending(plain, tell)):
            result.rules.append(rule)
            tell()
    decided = {rule.number for rule in result.rules}
    result.rules += [ImportedRule(k, name, "open") for k, name in enumerate(names) if k not in decided]
    result.rules.sort(key=lambda rule: rule.number)
    result.rules = merged(result.rules, [rule for rule, _ in plain])
    told = 0
    counts.clear()
    tell()
    return result


class _Reader:
    """Reads rules into the language; what needs no proof goes to the result at once."""

    def __init__(self, names: Sequence[str], result: Import, origin: str) -> None:
        self._names, self._result, self._origin = names, result, origin
        self._seen = Seen()

    def pending(self, rules: Sequence[tuple[ForeignRule, int]], tell: Callable[[], None]) -> Iterator[Pending]:
        """The rules that need a proof, as they are read. `tell` is called after each other one.

        Args:
            rules: each with the number of operators that distribute tensors and were left out.
        """
        for number, (rule, left_out) in enumerate(rules):
            found = self._read(number, rule, left_out)
            if isinstance(found, Pending):
                yield found
            else:
                self._result.rules.append(found)
                tell()

    def _read(self, number: int, rule: ForeignRule, left_out: int) -> Pending | ImportedRule:
        name = self._names[number]

        def told(outcome: Outcome, reason: str) -> ImportedRule:
            return ImportedRule(number, name, outcome, reason, left_out=left_out)

        if left_out and (not rule.source or all(output.source.operator < 0 for output in rule.outputs)):
            return told("distribution", "the source distributes tensors and computes nothing")
        missing = Counter(kind for kind in rule.kinds() if kind not in KNOWN)
        if missing:
            self._result.unknown.update(missing)
            return told("unknown", ", ".join(sorted(missing)))
        doc = documented(number, self._origin)
        if left_out:
            doc += f"; {left_out} operators that distribute tensors are left out."
        else:
            what = f": {described(rule)}"
            doc += what if len(doc + what) <= WIDTH else "."
        try:
            readings = tuple(translations(rule, name, doc))
        except UnboundTensor as problem:
            return told("unbound", str(problem))
        except (Clash, UnknownOperator) as problem:
            where = misfit(rule, tensor_names(rule))
            return told("impossible" if where is None else "rejected", where or str(problem))
        if self._seen.one_graph(rule, readings[0]):
            return ImportedRule(
                number, name, "distribution" if left_out else "same", "", readings[0], left_out=left_out
            )
        other = self._seen.other(name, rule, readings[0])
        if other is not None:
            return ImportedRule(number, name, "duplicate", other, readings[0], left_out=left_out)
        return Pending(number, name, readings, left_out)
