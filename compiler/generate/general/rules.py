"""From a substitution between concrete terms to a general rule: free sizes, lists of sizes, attributes as variables.

Whatever is generalised is tried first: the rule's text is instantiated at random sizes and attributes, and both sides are compared
modulo a prime. The provers have the last word on what is left.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product

import numpy as np

from dslc.errors import DslcError
from dslc.generate.general.dimensions import (
    GeneralTypes,
    NotGeneral,
    Slot,
    Tie,
    alike_ties,
    attribute_ties,
    axis_groups,
    equal_ties,
    general_types,
    slots_of,
)
from dslc.generate.general.text import (
    GROUPS,
    TENSORS,
    Choice,
    RuleForm,
    axis_of,
    body,
    choice,
    choices,
    declared,
    grouped_places,
)
from dslc.generate.terms.term import Conjecture, Item, applications, inputs, subterms
from dslc.interpret.check_rule import check_substitution
from dslc.interpret.draws import ORDINARY
from dslc.interpret.instantiate import Rejected, instantiate
from dslc.ir.dtype import DType
from dslc.prove.run.worker import written
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.values import OTHER_TEXT, texts
from dslc.syntax.vocabulary import KEYWORDS

WIDTH = 108  #: characters of a line of documentation
TRIALS = 2  #: instances that a form must hold for
STRICT_TRIALS = 4  #: the same for a rule that a prover has refuted in a more general form
DRAWS = 400  #: random sizes; a form that fits none of them is not tried
#: ranks that a list of sizes must fit, by which sizes it stands for
RANKS: dict[str, tuple[int, ...]] = {"all": (1, 2, 3), "axis": (0, 1, 2), "batch": (1,)}
FITTING = 20  #: random sizes for an instance of a rank


@dataclass(frozen=True, slots=True, eq=False)
class GeneralRule:
    """A rule as it will be written. `arrow` is `<=>` where either side binds what the other needs."""

    candidate: Conjecture
    typed: GeneralTypes
    form: RuleForm
    arrow: str

    @property
    def size(self) -> int:
        """The number of operators of the larger side."""
        return self.candidate.size


def generalise(rules: Rules, candidate: Conjecture) -> GeneralRule:
    """The most general rule of which a candidate is an instance.

    Raises:
        NotGeneral: where not even its sizes can be made free.
    """
    problem = "the sides differ at other sizes"
    for strictness in range(4):
        try:
            typed = general_types(rules, candidate, _ties(rules, candidate, strictness))
        except NotGeneral as found:
            problem = str(found)
            continue
        for rule in _directed(rules, candidate, typed):
            if holds(rules, rule):
                rule = _loosened(rules, candidate, rule) if strictness == 3 else rule
                return _packed(rules, _grouped(rules, _with_holes(rules, rule)))
    raise NotGeneral(problem)


def _ties(rules: Rules, candidate: Conjecture, strictness: int) -> list[Tie]:
    """No ties, those of attributes, also those of the common axes of inputs of one type that cannot be told apart, all of one size."""
    if strictness in {0, 3}:
        return equal_ties(candidate) if strictness else []
    if strictness == 1:
        return attribute_ties(candidate)
    base, kept = attribute_ties(candidate), alike_ties(candidate)
    for tie in kept:
        rest = [other for other in kept if other is not tie]
        try:
            general_types(rules, candidate, (*base, *rest))
        except NotGeneral:
            continue
        kept = rest
    return [*base, *kept]


def narrowed(rules: Rules, candidate: Conjecture) -> GeneralRule:
    """A rule where the most general one does not hold.

    Equal sizes of the candidate stay equal, axes of one position stay so (a kernel of 1x1), as far as that is needed; and it is tried
    at more sizes.

    Raises:
        NotGeneral: where that does not hold either.
    """
    # the axes of inputs that have one position only, those of inputs of one type together
    fixed = [
        group
        for groups in axis_groups(candidate)
        for group in groups
        if slots_of(candidate)[group[0]] == 1 and not group[0].attr
    ]
    typed = general_types(rules, candidate, equal_ties(candidate), [slot for group in fixed for slot in group])
    for rule in _directed(rules, candidate, typed):
        if holds(rules, rule, STRICT_TRIALS):
            return _packed(
                rules,
                _with_holes(rules, _loosened(rules, candidate, rule, fixed, STRICT_TRIALS), STRICT_TRIALS),
            )
    raise NotGeneral("the sides differ at other sizes, also where equal ones stay equal")


def _loosened(
    rules: Rules,
    candidate: Conjecture,
    rule: GeneralRule,
    fixed: Sequence[tuple[Slot, ...]] = (),
    trials: int = TRIALS,
) -> GeneralRule:
    """Of what has one size the axes, one after the other, that may have another; then those of the `fixed` ones that may have any."""
    single = {slot for group in fixed for slot in group}
    parts: list[list[tuple[Slot, ...]]] = [
        kept for groups in axis_groups(candidate) if (kept := [group for group in groups if not set(group) & single])
    ]

    def tried(parts: Sequence[Sequence[tuple[Slot, ...]]], fixed: Iterable[tuple[Slot, ...]]) -> GeneralRule | None:
        ties = [tie for other in parts for tie in pairwise(chain(*other))]
        try:
            typed = general_types(rules, candidate, ties, [slot for group in fixed for slot in group])
        except NotGeneral:
            return None
        fitting = (new for new in _directed(rules, candidate, typed) if new.arrow == rule.arrow)
        found = next((new for new in fitting if holds(rules, new, trials)), None)
        return found if found and len(found.typed.sizes) > len(rule.typed.sizes) else None

    for part in tuple(parts):
        for group in tuple(part)[1:]:
            trial = [[one for one in other if one is not group] for other in parts] + [[group]]
            if found := tried(trial, fixed):
                rule, parts = found, trial
    for group in fixed:
        rest = [other for other in fixed if other is not group]
        if found := tried([*parts, [group]], rest):
            rule, parts, fixed = found, [*parts, [group]], rest
    return rule


def _directed(rules: Rules, candidate: Conjecture, typed: GeneralTypes) -> list[GeneralRule]:
    """The rule in the direction, or both, in which the left side binds what the right side needs."""
    for one in (candidate, candidate.turned):
        if _binds(one, typed):
            return [GeneralRule(one, typed, RuleForm(), "<=>" if _binds(one.turned, typed) else "=>")]
    return []


def _binds(candidate: Conjecture, typed: GeneralTypes) -> bool:
    """Return whether the sources have all inputs, compute all outputs, and name the attributes that the targets name."""
    if not candidate.binds:
        return False
    bound = {name for term in inputs(candidate.sources) for dim in typed.tensors[term] for name in dim.split(" + ")}
    left, right = (
        {
            name
            for node in {term.node for term in subterms(side) if term.item}
            for text in typed.sized.get(node, {}).values()
            for name in _words(text)
        }
        for side in (candidate.sources, candidate.targets)
    )
    return right <= left | bound


def _words(text: str) -> list[str]:
    return [word for word in text.strip("[]").replace(" + ", ", ").split(", ") if word and not word.isdigit()]


# ---- trying ------------------------------------------------------------------------------------------------------


def short_names(operators: Iterable[str]) -> dict[str, str]:
    """Each operator by its short name, by its qualified one where two have the same."""
    names = sorted(set(operators))
    shorts = [name.rpartition(".")[2] for name in names]
    return {name: short if shorts.count(short) == 1 else name for name, short in zip(names, shorts, strict=True)}


def rule_text(
    rules: Rules, rule: GeneralRule, name: str, operators: Mapping[str, str], doc: str = "", tags: str = ""
) -> str:
    """A substitution in the language, not yet formatted."""
    head, left, right = body(rules, rule.candidate, rule.typed, rule.form, operators)
    lines = [f"substitution {name}{head} {{"]
    if doc:
        lines.append('"""' + "\n  ".join(textwrap.wrap(doc, WIDTH)) + '"""')
    lines += [left, rule.arrow, right]
    if tags:
        lines.append(f"tags {tags}")
    # equal over the reals: what becomes of other numbers was not asked
    return "\n".join([*lines, "verify numerics = nonfinite", "}"])


def definition(rules: Rules, rule: GeneralRule, name: str = "candidate") -> SubstitutionDef:
    """A rule as the loader would give it.

    Raises:
        DslcError: where the text does not parse (a bug).
    """
    operators = names_in(rule)
    text = rule_text(rules, rule, name, operators)
    cache: dict[str, SubstitutionDef] = rules_cache(rules, "generate.definitions")
    if text not in cache:
        cache[text] = written(rules, text, operators)
    return cache[text]


def names_in(rule: GeneralRule) -> dict[str, str]:
    """The operators of a rule: qualified names, each with the one that its text has for it."""
    return short_names(item.op for item in operators_of([rule]))


def holds(rules: Rules, rule: GeneralRule, trials: int = TRIALS) -> bool:
    """Return whether both sides agree at random sizes and attributes, modulo a prime (or as floats, where that cannot tell)."""
    try:
        outcome = check_substitution(
            rules, definition(rules, rule), trials=trials, attempts=DRAWS, adverse=trials, small=False
        )
    except (DslcError, Mismatch):
        return False
    return outcome.passed


# ---- attributes --------------------------------------------------------------------------------------------------


def _with_holes(rules: Rules, rule: GeneralRule, trials: int = 1) -> GeneralRule:
    """Attributes that have one value wherever they occur become variables, where the rule still holds."""
    found = choices(rules, rule.candidate)
    # an axis says which dimension of a type is meant: it becomes a variable together with the type, or not at all
    sources = choices(rules, Conjecture(rule.candidate.sources, ()))
    open_choices = [
        c
        for c in dict.fromkeys(found)
        if c[2] not in {"axis", "axes", "permutation", "ints"} and found.count(c) > 1 and c in sources
    ]
    if not open_choices:
        return rule
    named = _hole_names(open_choices, rule.typed)
    kept: dict[Choice, str] = {}
    for options in (open_choices, *([option] for option in open_choices)):
        trial = {**kept, **{option: named[option] for option in options}}
        words = [replace(rule, form=RuleForm(values)) for values in _word_values(rules, rule, trial)]
        # with every choice of words there are instances enough
        if all(holds(rules, one, trials) for one in (replace(rule, form=RuleForm(trial)), *words)):
            kept = trial
            if options is open_choices:
                break
    if rule.arrow == "<=>" and not set(kept) <= set(choices(rules, Conjecture(rule.candidate.targets, ()))):
        return replace(rule, form=RuleForm(kept), arrow="=>")
    return replace(rule, form=RuleForm(kept))


def less_general(rules: Rules, rule: GeneralRule) -> GeneralRule | None:
    """The next less general form.

    It is without variables for attributes that have no default, without groups, without any variables, at one rank only.
    """
    holes = rule.form.holes
    usual = {option: name for option, name in holes.items() if option in _with_default(rules, rule)}
    if len(usual) < len(holes):
        return replace(rule, form=replace(rule.form, holes=usual))
    if rule.form.grouped:
        return replace(rule, form=replace(rule.form, grouped=frozenset()))
    if holes:
        return replace(rule, form=replace(rule.form, holes={}))
    return replace(rule, form=RuleForm()) if rule.form.pack else None


def _with_default(rules: Rules, rule: GeneralRule) -> set[Choice]:
    """The attribute values whose attributes have a default wherever they occur."""
    found = list(_options(rules, rule))
    unusual = {option for option, item in found if declared(rules, item, option[0]).default is None}
    return {option for option, _ in found} - unusual


def _options(rules: Rules, rule: GeneralRule) -> Iterator[tuple[Choice, Item]]:
    """The attribute values of a rule that follow from no sizes or types, with their items."""
    for item in operators_of([rule]):
        for name, value in item.attrs:
            if name not in item.sized and not isinstance(value, DType):
                yield choice(rules, item, name, value), item


def _word_values(rules: Rules, rule: GeneralRule, named: Mapping[Choice, str]) -> Iterator[dict[Choice, str]]:
    """Every choice of words for the variables of attributes that are words: random instances only have the default."""
    words: dict[Choice, list[str]] = {}
    for option, item in _options(rules, rule):
        if option in named and option[2] == "string":
            known = texts(rules.operators[item.op], declared(rules, item, option[0]))
            words[option] = [f'"{word}"' for word in known if word != OTHER_TEXT]
    for values in product(*words.values()) if words else ():
        yield {**named, **dict(zip(words, values, strict=True))}


def _hole_names(options: Sequence[Choice], typed: GeneralTypes) -> dict[Choice, str]:
    """The first letter of an attribute, or more of it where that is taken."""
    taken = set(typed.sizes) | {"a", "T"} | set(KEYWORDS)
    taken |= {word for values in typed.sized.values() for text in values.values() for word in _words(text)}
    out: dict[Choice, str] = {}
    for option in options:
        stem = option[0]
        names = [stem[:1], stem[:2], stem[:3], *(f"{stem[:1]}{k}" for k in range(2, 20))]
        out[option] = next(name for name in names if name not in taken)
        taken.add(out[option])
    return out


# ---- groups ------------------------------------------------------------------------------------------------------


def _grouped(rules: Rules, rule: GeneralRule) -> GeneralRule:
    """Any number of groups where operators take sizes apart, if the rule holds so."""
    places = grouped_places(rules, rule.candidate, TENSORS.index(GROUPS))
    if not places or any("+" in rule.typed.tensors[term][axis] for term, axis in places):
        return rule
    # two of them first: a rule that has no instance but for one group is not more general
    several = [replace(rule, form=replace(rule.form, grouped=places, groups=groups)) for groups in ("2", GROUPS)]
    return several[-1] if all(holds(rules, one) for one in several) else rule


# ---- ranks -------------------------------------------------------------------------------------------------------


def _packed(rules: Rules, rule: GeneralRule) -> GeneralRule:
    """Lists of sizes in place of single ones, where the rule has instances at other ranks and holds there."""
    if rule.form.grouped:
        return rule
    for pack in RANKS:
        if _may_pack(rules, rule, pack):
            trial = replace(rule, form=replace(rule.form, pack=pack))
            if all(_fits(rules, trial, rank) for rank in RANKS[pack]) and holds(rules, trial):
                return trial
    return rule


def _may_pack(rules: Rules, rule: GeneralRule, pack: str) -> bool:
    tensors = list(rule.typed.tensors.values())
    shapes = [dims for dims in tensors if dims]
    if not shapes or len({len(dims) for dims in shapes}) != 1 or any("+" in dim for dims in shapes for dim in dims):
        return False
    axis = axis_of(rules, rule.candidate)
    axes = {c for c in choices(rules, rule.candidate) if c[2] == "axis"}
    if pack == "all":
        return not axes and len(set(shapes)) == 1
    if pack == "axis":
        others = {tuple(dim for at, dim in enumerate(dims) if at != axis) for dims in shapes}
        named = [choices(rules, Conjecture(side, ())) for side in (rule.candidate.sources, rule.candidate.targets)]
        bound = all(any(c[2] == "axis" for c in side) for side in (named if rule.arrow == "<=>" else named[:1]))
        return len(shapes) == len(tensors) and bool(axes) and axis >= 0 and bound and len(others) == 1
    return not axes and len(shapes) == len(tensors) and len(shapes[0]) >= 2


def _fits(rules: Rules, rule: GeneralRule, rank: int) -> bool:
    """Return whether a rule has an instance where its lists of sizes are of a rank."""
    sub, rng = definition(rules, rule), np.random.default_rng(0)
    for _ in range(FITTING):
        with suppress(Rejected):
            instantiate(rules, sub, rng, draws=replace(ORDINARY, ranks=(rank,)))
            return True
    return False


def operators_of(rules: Iterable[GeneralRule]) -> tuple[Item, ...]:
    """The distinct menu items of some rules, in order of first use."""
    return tuple(dict.fromkeys(term.item for rule in rules for term in subterms(rule.candidate.roots) if term.item))


TOGETHER = 2  #: rules of one kind that are tried at once

Kind = tuple[tuple[str, ...], tuple[str, ...], bool, str]


def kind(rule: GeneralRule) -> Kind:
    """Equal for rules that are alike."""
    names = sorted(item.op for item, _ in applications(rule.candidate.roots))
    return tuple(names), tuple(sorted(name for name, _, _ in rule.form.holes)), bool(rule.form.grouped), rule.form.pack


class Tries:
    """The provers' answers for rules of each kind."""

    def __init__(self) -> None:
        self._undecided: Counter[Kind] = Counter()
        self._decided: set[Kind] = set()
        #: of each kind, how many rules were met since the last round of proofs
        self._met: Counter[Kind] = Counter()

    def at_once(self, rule: GeneralRule) -> bool:
        """Return whether a rule that was kept just now will be among the first that `next` gives, whatever else is kept before that."""
        own = kind(rule)
        self._met[own] += 1
        return own in self._decided or self._met[own] <= TOGETHER

    def next(self, todo: Sequence[GeneralRule]) -> tuple[list[GeneralRule], list[GeneralRule]]:
        """The rules that are proved now, and those that are proved later."""
        self._met.clear()
        now: list[GeneralRule] = []
        later: list[GeneralRule] = []
        for rule in todo:
            (now if self.at_once(rule) else later).append(rule)
        self._met.clear()
        return now, later

    def decided(self, rule: GeneralRule) -> None:
        self._decided.add(kind(rule))

    def undecided(self, rule: GeneralRule) -> None:
        self._undecided[kind(rule)] += 1

    def weaker(self, rules: Rules, rule: GeneralRule) -> GeneralRule | None:
        """The next form that is worth a proof; the last one always is. None where there is no other."""
        found = less_general(rules, rule)
        while found and self.hopeless(found) and (other := less_general(rules, found)):
            found = other
        return found

    def hopeless(self, rule: GeneralRule) -> bool:
        own = kind(rule)
        return own not in self._decided and self._undecided[own] >= TOGETHER
