"""Rules in Python: load, check, test and prove them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import median

import numpy as np

from dslc.api.models import Model, libraries_of, model_of, names_of, path_of, sizes_of, whole, wrong
from dslc.checking.fixes import Checked, checked
from dslc.checking.rule_tests import newest_opset, run_tests
from dslc.diagnostics.render import render
from dslc.errors import Diagnostic, DslcError, error
from dslc.folders import cache_folder
from dslc.fuse.groups import Neighbours
from dslc.fuse.kernels import folded
from dslc.inspection.lookup import find_rule
from dslc.interpret.check_rule import CaseOutcome
from dslc.interpret.draws import elements
from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, Value, nodes_of
from dslc.match import CompiledRule, GraphIndex, apply_match, compile_directions, find_matches, replacements
from dslc.match import why_not as unmatched
from dslc.match.enabling_rules import before
from dslc.match.why_not import Explanation
from dslc.mutate.correct import corrections, differing, wrong_at
from dslc.mutate.partial import PartialRule, applied, compiled, sites
from dslc.onnx.context import Imported
from dslc.onnx.exporter import exportable, node_model
from dslc.onnx.importer import import_model
from dslc.onnx.naming import naming_of
from dslc.prove.evidence.dependencies import trust_locks
from dslc.prove.partial.rules import percent
from dslc.prove.run.verify import chosen
from dslc.prove.run.verify import verify as prove
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.records import record
from dslc.reporting.places import DrawnPlace, page_of_places, place_of
from dslc.search.candidates.export import as_kernels, no_compiler, texts_of
from dslc.search.options.types import PathLike
from dslc.search.runs.selection import statuses, usable
from dslc.semantics.installed import library_of
from dslc.semantics.library import Rules, load_many, modules_of
from dslc.semantics.library import load as load_library
from dslc.sessions import session

# ---- load, check, test, prove --------------------------------------------------------------------------------------


def load(path_or_library: PathLike) -> Rules:
    """A rule library: `std`, an installed one's name, a folder, or a `.rules` file, with everything that it imports.

    Returns:
        Its operators, rules and laws by qualified name.

    Raises:
        DslcError: syntax errors, unknown names, circular imports.

    Example:
        >>> import dslc
        >>> rules = dslc.load("std")
        >>> rules.operator("matmul").name
        'std.matmul'
    """
    name = path_or_library
    return load_library(name if isinstance(name, str) else path_of(name, "a library's name, or a file of rules,"))


def check(rules: PathLike | Sequence[PathLike], *, overlaps: bool = False) -> Checked:
    """The mistakes in rule files and libraries that can be found without running them.

    Args:
        rules: a library's name, a folder, a `.rules` file, or several of these.
        overlaps: also rules that match the same graphs.

    Returns:
        `.ok`, `.diagnostics` with codes and places, `.files`; its text is what `dslc check` prints. Mistakes are not raised.

    Raises:
        DslcError: E0902 or E0203 where there is no such file or library.

    Example:
        >>> import dslc
        >>> dslc.check("taso").ok
        True
    """
    return checked(libraries_of(rules), bool(overlaps))


@record
class Tested:
    """Outcomes of the tests and examples of rule files, and of their laws and rules at random sizes; `seconds` for all of them."""

    outcomes: tuple[CaseOutcome, ...]
    seconds: float

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Reasons why some failed."""
        return tuple(one for outcome in self.outcomes for one in outcome.diagnostics)

    @property
    def failed(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def ok(self) -> bool:
        """True where all passed."""
        return not self.failed

    @property
    def summary(self) -> str:
        """`12 passed, 1 failed in 0.3 s`."""
        return f"{len(self.outcomes) - len(self.failed)} passed, {len(self.failed)} failed in {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<Tested: {self.summary}>"

    def __str__(self) -> str:
        return "\n".join([*([render(self.diagnostics, "full")] if self.diagnostics else []), self.summary])


def test(
    rules: PathLike | Sequence[PathLike] = "std", *, names: str | Sequence[str] = (), trials: int = 3, seed: int = 0
) -> Tested:
    """Runs the `test` and `example` blocks of rule files, and compares both sides of their rules and laws at random sizes.

    Args:
        rules: a library's name, a folder, a `.rules` file, or several of these.
        names: of what to run, patterns (`conv*`) among them; by default everything.
        trials: random instances of each rule and law, modulo 2147483647; 0 leaves them out.
        seed: of the random instances.

    Returns:
        `.ok`, `.outcomes` in the order of the files, `.diagnostics` of those that failed, `.seconds`.

    Raises:
        DslcError: E0909 where nothing has such a name, and as `load`.

    Example:
        >>> import dslc
        >>> dslc.test("std", names="relu").ok
        True
    """
    listed, patterns = libraries_of(rules), names_of(names, "what is run")
    known, start = load_many(listed), time.perf_counter()
    outcomes = run_tests(
        known, patterns or None, modules_of(known, listed), whole(seed, "seed"), whole(trials, "number of trials")
    )
    if patterns and not outcomes:
        raise error("E0909", f"nothing is named {', '.join(patterns)}")
    return Tested(tuple(outcomes), time.perf_counter() - start)


# this is a command, not a test
test.__test__ = False  # type: ignore[attr-defined]


def verify(
    rules: PathLike | Sequence[PathLike] | Rules = "std",
    *,
    names: str | Sequence[str] | None = None,
    workers: int = 2,
    lock: bool = False,
) -> tuple[RuleVerdict, ...]:
    """Proves the substitutions and laws of a library: each is proved, refuted with a counterexample, or neither, with the reason.

    Args:
        rules: a library's name, a folder, a `.rules` file, several of these, or loaded rules.
        names: of the rules and laws that are meant (one, or several; default: all of what `rules` names), qualified or short.
        workers: processes; 0 proves in this one, without limits of time.
        lock: whether to read and write the `dslc.lock` beside each library.

    Returns:
        A verdict for each, with `.rule`, `.status`, `.reason`, each prover's answer in `.verdicts`, and `.counterexample`.

    Raises:
        DslcError: E0909 for an unknown name, E0510 where the provers disagree.

    Example:
        >>> import dslc
        >>> [(one.rule, one.status) for one in dslc.verify("std", names=["double_neg"], workers=0)]
        [('std.double_neg', 'proved')]
    """
    if isinstance(rules, Rules):
        loaded, inside = rules, chosen(rules, rules.modules)
    else:
        listed = libraries_of(rules)
        loaded = load_many(listed)
        inside = chosen(loaded, modules_of(loaded, listed))
    names = [names] if isinstance(names, str) else names
    whole(workers, "number of processes")
    for name in names or ():
        if not any(name in (one, one.rpartition(".")[2]) for one in inside):
            raise error("E0909", f"no rule or law is named `{name}`")
    if names is not None:
        inside = [one for one in inside if one in names or one.rpartition(".")[2] in names]
    return prove(loaded, inside, workers, "beside" if lock else None)


# ---- reasons why a rule is not used --------------------------------------------------------------------------------

PLACES = 2  #: places that are looked at
RUNS = 15  #: runs of either side that are timed
CLOSE = 1.03  #: ratio of two times of one thing, by chance
#: what a rule gains in a model is predicted from its place, without what is around it
FIRST, AGAIN = "Predicted from these nodes timed alone", "At another place"


@record
class WhyNot:
    """Reason why one direction of a rule does not apply to a model; where it does, what keeps `dslc optimize` from using it.

    `after`: the rules that come before it so that it applies, None where none were found; `obstacles`: sentences about a rule that
    applies, at once or after these; `steps`: how many rules were tried; `where`: the closest match in the model and in the rule.
    """

    explanation: Explanation
    after: tuple[str, ...] | None
    obstacles: tuple[str, ...]
    steps: int
    where: DrawnPlace

    @property
    def applies(self) -> int:
        """At how many places the rule applies."""
        return self.explanation.applies

    def __repr__(self) -> str:
        found = self.explanation
        return f"<WhyNot {found.rule}: {f'applies at {found.applies}' if found.applies else found.reason}>"

    def __str__(self) -> str:
        if self.applies:
            return " ".join([str(self.explanation), *self.obstacles])
        if self.after is not None:
            return "\n".join(
                [str(self.explanation), " ".join([f"  Applies after {', then '.join(self.after)}.", *self.obstacles])]
            )
        most = {1: "another rule", 2: "up to 2 other rules"}.get(self.steps)
        return f"{self.explanation}\n  Applying {most} first does not help." if most else str(self.explanation)

    def to_html(self, model: str = "the model") -> str:
        """A page of the rule's text and of the model around the place, with what matches and what fails marked."""
        return page_of_reasons([self], model)


def page_of_reasons(found: Sequence[WhyNot], model: str) -> str:
    """A page of what `why_not` says of the directions of a rule."""
    rule = found[0].explanation.rule.removesuffix("^-1")
    return page_of_places(f"{rule} in {model}: dslc why-not", [(str(one), one.where) for one in found])


def why_not(
    rule: str,
    model: Model,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    bind: Mapping[str, int] | None = None,
    steps: int = 2,
    trust_lock: bool = False,
) -> tuple[WhyNot, ...]:
    """Explains why a rule does not apply to a model: the closest match, and the first thing that fails there.

    Args:
        rule: its name, qualified or short; `RULE^-1` is only the reverse of a two-way rule.
        rules: libraries beside std.
        bind: sizes of symbolic dimensions by name.
        steps: other rules, at most 2, that may come before it so that it applies.
        trust_lock: believe what a `dslc.lock` says of unchanged rules, whoever wrote it.

    Returns:
        One for each direction that is looked for: `.applies` counts places, `.explanation` has the closest match and the reason,
        `.after` the rules that could come before, `.obstacles` what keeps `optimize` from using it where it applies.

    Raises:
        DslcError: E0909 for what is no rule, and for what is wrong with the model.

    Example:
        >>> import dslc, onnx.parser
        >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> [found.applies for found in dslc.why_not("double_neg", onnx.parser.parse_model(text), steps=0)]
        [0]
    """
    if whole(steps, "number of rules") > 2:
        raise wrong(f"{steps} is no number of rules before another: 0, 1 or 2")
    own = library_of(rule)
    known = load_many(["std", *libraries_of(rules), *([own] if own else [])])
    trust_locks(known, trust_lock)
    name = rule.removesuffix("^-1")
    directions = compile_directions(known, find_rule(known, name))
    if name != rule:
        directions = tuple(direction for direction in directions if direction.reverse)
        if not directions:
            raise error("E0909", f"`{name}` has no reverse that could be matched")
    imported = import_model(model_of(model), known, sizes_of(bind))
    others: list[CompiledRule] = []
    for definition in known.substitutions.values() if steps else ():
        if not definition.syntax.partial:
            # one that cannot be matched is left out
            with suppress(DslcError):
                others += compile_directions(known, definition)
    return tuple(_direction(known, direction, imported, others, steps) for direction in directions)


def _direction(
    rules: Rules, direction: CompiledRule, imported: Imported, others: list[CompiledRule], steps: int
) -> WhyNot:
    graph, opset = imported.graph, imported.context.opset
    naming = naming_of(imported.context)
    names: dict[Value | Node, str] = {node: called.place for node, called in naming.nodes.items()}
    names |= naming.values.items()
    partial = direction.definition.syntax.partial
    found = unmatched(direction, graph, names)
    if found.applies and not partial:
        # proved for other element types only, it does not
        used, _ = usable([direction], {direction.definition.name: _known(rules, direction)}, tuple(RELIABLE))
        found = unmatched(used[0] if used else direction, graph, names)
    calls = {site.span for site in direction.left.sites}
    where = place_of(graph, names, direction.span, calls, found.nodes, found.node, found.span)
    if found.applies:
        if partial:
            hindrances = partial_obstacles(rules, direction, graph, opset)
        else:
            hindrances = obstacles(rules, direction, graph, opset, names)
        return WhyNot(found, None, tuple(hindrances), steps, where)
    earlier = before(direction, graph, others, steps)
    if not earlier:
        return WhyNot(found, None, (), steps, where)
    return WhyNot(
        found, tuple(earlier.rules), tuple(obstacles(rules, direction, earlier.graph, opset, names)), steps, where
    )


def obstacles(
    rules: Rules, rule: CompiledRule, graph: Graph, opset: int, names: Mapping[Value | Node, str]
) -> list[str]:
    """A sentence for each thing that stands in the way, or the time that the rule gains, at the first places where it matches.

    `opset` is the model's, `names` what it calls its nodes.
    """
    known = _known(rules, rule)
    out: list[str] = []
    if known.usable(RELIABLE) == ():
        allowed = f" (--allow {known.status} uses it)" if known.status != "refuted" else ""
        out.append(f"Not used: its status is {known.status}{allowed}.")
    count = 0
    for match in find_matches(rule, GraphIndex(graph)):
        after = apply_match(match, graph)
        if not after:
            continue
        new = replacements(match)
        inputs = [value for value in dict.fromkeys(match.variables.values()) if not value.constant]
        rest = set(after.nodes()).difference(nodes_of(list(new.values())))
        stays = [node for node in match.calls if node in rest]
        out += [f"{names[node]} stays: it is read elsewhere, too." for node in stays if node in names]
        new |= {value: value for node in stays for value in node.values}
        out += _unwritable(rules, list(new.values()), graph, opset) or _times(
            rules, new, inputs, opset, AGAIN if count else FIRST
        )
        count += 1
        if count == PLACES:
            break
    return list(dict.fromkeys(out))


def partial_obstacles(rules: Rules, rule: CompiledRule, graph: Graph, opset: int) -> list[str]:
    """The same of one direction of a partial substitution, which `dslc optimize` uses whatever its status is, where it is corrected."""
    every = [one for one in compiled(rules, [rule.definition]) if one.rule.reverse == rule.reverse]
    around = Neighbours(graph)
    out: list[str] = []
    for program, place in list(sites(every, graph))[:PLACES]:
        inside = [value for node in place[1:] for value in node.values]
        if not all(value.known and value.type.is_static for node in place for value in (*node.args, *node.values)):
            out.append("Not used: mutants need known sizes: --bind NAME=N --specialize.")
        elif any(
            value in around.final or any(user not in place for user in around.used.get(value, ())) for value in inside
        ):
            out.append("Not used: something else needs what is inside of its left side.")
        else:
            out += _corrected(rules, every, program, opset, AGAIN if out else FIRST)
    return list(dict.fromkeys(out))


def _corrected(rules: Rules, every: Sequence[PartialRule], program: Graph, opset: int, where: str) -> list[str]:
    """The result of a partial substitution, corrected: the share that is computed again, and its time; or why it is left out."""
    (old,) = program.outputs
    out: list[str] = []
    for one in applied(rules, every, program):
        found = differing(rules, old, one.value)
        if not found or not found.proved:
            out.append("Not used: where its sides differ is not proved.")
        elif found.share > one.limit:
            out.append(
                f"Not used: its sides differ in {percent(found.share)}, and {percent(one.limit)} may be computed again."
            )
        elif not (ways := corrections(rules, old, one.value, one.limit, one.own)):
            at = wrong_at(rules, old, one.own, found.boxes) if one.own else None
            out.append(f"Not used: its correction is wrong at {list(at or ())}.")
        else:
            corrected = " by its correction" if ways[0].own else ", as its correction is not proved"
            how = corrected if one.own else ""
            out.append(f"{percent(ways[0].share)} of the result is computed again{how}.")
            out += _times(rules, {old: _with_kernels(program, ways[-1].value(rules))}, program.inputs, opset, where)
    return out


def _with_kernels(region: Graph, value: Value) -> Value:
    """A replacement of a region, with its expressions as kernels."""
    graph = Graph(region.inputs, (value,))
    around = Neighbours(graph)
    return folded(graph, [around.group([node]) for node in around.nodes if isinstance(node, ScopeNode)]).outputs[0]


def _known(rules: Rules, rule: CompiledRule) -> RuleVerdict:
    """The status of a rule as `dslc optimize` knows it."""
    return statuses(rules, [rule.definition], cache_folder())[rule.definition.name]


def _unwritable(rules: Rules, values: Sequence[Value], graph: Graph, opset: int) -> list[str]:
    """Operators of a replacement without an ONNX form at the model's opset, and without a kernel."""
    old = set(graph.nodes())
    out = []
    for node in nodes_of(values):
        if not isinstance(node, Call) or node in old or node.constant or exportable(node, rules, opset):
            continue
        outputs = as_kernels(rules, node.values, opset)
        if not no_compiler() and isinstance(outputs[0].node, Kernel) and texts_of(rules, outputs, opset):
            continue
        later = next((k for k in range(opset + 1, newest_opset() + 1) if exportable(node, rules, k)), None)
        if later is None:
            out.append(f"Not used: ONNX has no node for `{node.op}`, and there is no kernel.")
        else:
            out.append(f"Not used: `{node.op}` needs opset {later}, the model has {opset}.")
    return out


def _times(rules: Rules, new: Mapping[Value, Value], inputs: Sequence[Value], opset: int, where: str) -> list[str]:
    """The times of some values and of what may stand for them, over these inputs; or why ONNX Runtime does not run the new ones."""
    if not inputs or not all(value.known and value.type.is_static for value in (*inputs, *new, *new.values())):
        return ["Its price depends on sizes: --bind NAME=N."]
    kernels, sides = False, []
    try:
        for outputs in (new.keys(), new.values()):
            model, names = node_model(as_kernels(rules, list(outputs), opset), rules, opset, inputs=inputs)
            rng = np.random.default_rng(0)
            feeds = {
                name: elements(value.type, "positions", rng, most=1) for name, value in zip(names, inputs, strict=True)
            }
            kernels |= bool(model.functions)
            sides.append((session(model), feeds, list[float]()))
    except DslcError as problem:
        return [f"Not used: ONNX Runtime cannot run the result: {problem.diagnostics[0].message}."]
    for _ in range(RUNS):
        for running, feeds, found in sides:
            began = time.perf_counter()
            running.run(None, feeds)
            found.append(time.perf_counter() - began)
    before_ms, after_ms = (1e3 * median(found) for _, _, found in sides)
    how = " with a generated kernel" if kernels else ""
    ratio = before_ms / after_ms
    gain = f"{ratio:.2g}x faster" if ratio > CLOSE else "slower" if ratio < 1 / CLOSE else "no faster"
    return [f"{where}{how}: {before_ms:.3g} -> {after_ms:.3g} ms, {gain}."]
