"""The rows of `dslc list` and of the documentation's index, read off loaded libraries and the registries of targets and strategies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from dslc.cost.targets import LIBRARY
from dslc.errors import DslcError
from dslc.inspection.lookup import called, onnx_names
from dslc.prove.evidence.dependencies import recorded
from dslc.prove.run.conclusion import trusted_reason
from dslc.records import record
from dslc.search.options.option import flag, options
from dslc.search.options.strategies import STRATEGIES
from dslc.search.runs.selection import members_of
from dslc.semantics.definitions import DerivationDef, LoweringDef, Module, OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.installed import libraries
from dslc.semantics.library import Rules, load
from dslc.semantics.targets import TARGETS

Kind: TypeAlias = Literal["substitution", "law", "derivation", "lowering"]
RuleDef: TypeAlias = SubstitutionDef | PropertyDef | DerivationDef | LoweringDef


@record
class OperatorRow:
    """An operator: `onnx` are the nodes that it is written as or that are read as a use of it, `used_by` how many rules call it."""

    name: str
    signature: str
    doc: str
    onnx: tuple[str, ...]
    used_by: int
    path: str
    line: int


@record
class RuleRow:
    """A rule, law, derivation or lowering.

    `status` is empty where nothing is written down; `counts` says whether it is dslc's or this user's own proof, not a lock's word.
    """

    name: str
    kind: Kind
    status: str
    counts: bool
    reason: str
    doc: str
    operators: tuple[str, ...]
    sets: tuple[str, ...]
    tests: int
    path: str
    line: int


@record
class LibraryRow:
    """A library that can be named here; `problem` is why it cannot be read."""

    name: str
    version: str
    operators: int
    rules: int
    path: str
    problem: str = ""


@record
class TargetRow:
    """A target: `on` as the command line takes it, `devices` that lowerings name for it, and how many of these there are.

    `sheets` are the data sheets that `--device` chooses among, the default first.
    """

    on: str
    doc: str
    devices: tuple[str, ...]
    lowerings: int
    sheets: tuple[str, ...]


@record
class StrategyRow:
    """A way to search, with the names of its options."""

    name: str
    doc: str
    options: tuple[str, ...]


def operators(rules: Rules, of: Iterable[Module] | None = None) -> tuple[OperatorRow, ...]:
    """The operators of some modules, by default of all of them, by name."""
    chosen = set(rules.modules if of is None else of)
    names = onnx_names(rules)
    uses = Counter(name for _, one in definitions(rules) for name in called(one.module, one.syntax))
    out = []
    for name, op in sorted(rules.operators.items()):
        if op.module in chosen:
            nodes, doc = tuple(names.get(name, ())), first_sentence(op.syntax.doc)
            out.append(OperatorRow(name, op.signature, doc, nodes, uses[name], *place(op)))
    return tuple(out)


def definitions(rules: Rules) -> Iterator[tuple[Kind, RuleDef]]:
    """Everything that says that one program may stand for another, with its kind."""
    yield from (("substitution", one) for one in rules.substitutions.values())
    yield from (("law", one) for one in rules.laws.values())
    yield from (("derivation", one) for one in rules.derivations.values())
    yield from (("lowering", one) for one in rules.lowerings.values())


def all_rules(rules: Rules, of: Iterable[Module] | None = None) -> tuple[RuleRow, ...]:
    """The rules of some modules, by default of all of them, in the order in which their files have them."""
    chosen = set(rules.modules if of is None else of)
    sets: dict[str, list[str]] = {}
    for name, ruleset in rules.rulesets.items():
        for member in members_of(rules, ruleset):
            sets.setdefault(member, []).append(name)
    tests = Counter(test.name for test in rules.tests)
    out = []
    for kind, one in definitions(rules):
        if one.module in chosen:
            status, counts, reason = status_of(rules, one)
            row = RuleRow(
                one.name, kind, status, counts, reason, first_sentence(getattr(one.syntax, "doc", None)),
                tuple(called(one.module, one.syntax)), tuple(sets.get(one.name, ())), tests[one.name], *place(one),
            )  # fmt: skip
            out.append(row)
    return tuple(out)


def status_of(rules: Rules, definition: RuleDef) -> tuple[str, bool, str]:
    """The recorded status of a rule (empty: none), whether that counts here, and its bound or reason."""
    if isinstance(definition, DerivationDef | LoweringDef):
        return "", False, ""
    found, counts = recorded(rules, definition)
    if found:
        return found.status, counts, found.reason
    reason = trusted_reason(definition)
    return ("trusted", False, reason) if reason is not None else ("", False, "")


def all_libraries() -> tuple[LibraryRow, ...]:
    """Every library that can be named here, read whole: its own definitions are counted, those that it imports are not."""
    out = []
    for name, folder in libraries().items():
        try:
            rules = load(folder)
        except DslcError as problem:
            out.append(LibraryRow(name, "", 0, 0, str(folder), str(problem).splitlines()[0]))
            continue
        own = {module for module in rules.modules if module.library == name}
        found = sum(op.module in own for op in rules.operators.values())
        counted = sum(one.module in own for _, one in definitions(rules))
        root = next((one.file.header.library for one in own if one.file.header.library), None)
        out.append(LibraryRow(name, root.version if root else "", found, counted, str(folder)))
    return tuple(out)


def all_targets() -> tuple[TargetRow, ...]:
    """The registry of targets, and how many lowerings of their library each has."""
    named = [one.syntax.device for one in load(LIBRARY).lowerings.values()]
    return tuple(
        TargetRow(on, one.doc, one.devices, sum(map(named.count, one.devices)), one.sheet_names)
        for on, one in TARGETS.items()
    )


def all_strategies() -> tuple[StrategyRow, ...]:
    """The values of `--strategy`; the first one is the default."""
    return tuple(
        StrategyRow(
            name, first_sentence(one.__doc__), tuple(flag(f.name, about, f.default) for f, about in options(one))
        )
        for name, one in STRATEGIES.items()
    )


@record
class Wanted:
    """A choice of rows. Names are patterns, qualified or short; what is empty asks nothing."""

    onnx: Sequence[str] = ()
    operator: Sequence[str] = ()
    status: Sequence[str] = ()
    sets: Sequence[str] = ()
    kinds: Sequence[str] = ()

    def operators(self, rows: Iterable[OperatorRow]) -> tuple[OperatorRow, ...]:
        return tuple(row for row in rows if _any(self.operator, [row.name]) and _any(self.onnx, row.onnx, str.casefold))

    def rules(self, rows: Iterable[RuleRow], nodes: dict[str, dict[str, None]]) -> tuple[RuleRow, ...]:
        """`nodes`: the ONNX names of each operator (`onnx_names`), by which a rule's operators are asked for."""
        return tuple(
            row
            for row in rows
            if _any(self.operator, row.operators)
            and _any(self.onnx, [node for name in row.operators for node in nodes.get(name, ())], str.casefold)
            and (not self.status or (row.status or "unknown") in self.status)
            and _any(self.sets, row.sets)
            and (not self.kinds or row.kind in self.kinds)
        )


def _any(patterns: Sequence[str], names: Iterable[str], form: Callable[[str], str] = str) -> bool:
    """Return whether a name, qualified or short, matches a pattern; all do where no pattern is given."""
    given = [form(pattern) for pattern in patterns]
    return not given or any(
        fnmatchcase(form(written), pattern)
        for name in names
        for written in (name, name.rpartition(".")[2])
        for pattern in given
    )


def place(definition: OperatorDef | RuleDef) -> tuple[str, int]:
    """File and line of a definition."""
    span = definition.span
    return span.source.path, span.source.position(span.start)[0]


def first_sentence(doc: str | None) -> str:
    """The first sentence of a documentation, on one line."""
    return " ".join((doc or "").split("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
