"""Names and descriptions of generated rules, from their operators and from what happens to them.

| both sides                                            | name                                 |
|-------------------------------------------------------|--------------------------------------|
| several results, one application on the target side   | `merge_two_matmul_by_concat`         |
| the target is an input                                | `drop_transpose_of_transpose`        |
| the same but for attributes                           | `restate_conv`                       |
| one operator twice, its inputs in the same order      | `reassociate_matmul`                 |
| one operator, its inputs in another order             | `commute_ewadd`                      |
| f of g, and g of f                                    | `exchange_relu_and_transpose`        |
| anything else                                         | `ewadd_of_two_matmul_to_matmul_of_two_concat` |

A name that several rules would have is numbered in the order of their texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dslc.generate.general.rules import GeneralRule
from dslc.generate.terms.term import Term, subterms

_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}


LONGEST = 72  #: characters of a name, at most


def named(rules: Sequence[GeneralRule]) -> dict[GeneralRule, str]:
    """A unique name for each rule; equal sets of rules get equal names."""
    stems = {rule: stem(rule) for rule in rules}
    count = Counter(stems.values())
    used: Counter[str] = Counter()
    taken = set(stems.values())
    out: dict[GeneralRule, str] = {}
    for rule in sorted(rules, key=lambda rule: (stems[rule], str(rule.candidate))):
        name = stems[rule]
        if count[name] > 1:
            used[name] += 1
            if used[name] > 1:
                number = used[name]
                while f"{name}_{number}" in taken:
                    number += 1
                used[name] = number
                name = f"{name}_{number}"
                taken.add(name)
        out[rule] = name
    return out


def stem(rule: GeneralRule) -> str:
    """The name of a rule before it is made unique."""
    sources, targets = rule.candidate.sources, rule.candidate.targets
    if len(sources) > 1:
        return _short(f"merge_{_several([_op(term) for term in sources])}{_by(sources, targets)}")
    (source,), (target,) = sources, targets
    if target.is_leaf:
        return _short(f"{_words(source)}_to_{_op(target)}" if target.item else f"drop_{_words(source)}")
    ops, others = _ops(sources), _ops(targets)
    if _bare(source) == _bare(target):
        return _short(f"restate_{_words(source)}")
    if ops == others and len(set(ops)) == 1:
        verb = (
            "reassociate"
            if len(ops) > 1 and _leaves(source) == _leaves(target)
            else "commute"
            if len(ops) == 1
            else "rearrange"
        )
        return f"{verb}_{ops[0]}"
    if len(set(ops)) == 2 and set(ops) == set(others) and _op(source) != _op(target):
        return f"exchange_{_op(source)}_and_{_op(target)}"
    return _short(f"{_words(source)}_to_{_words(target)}")


def described(rule: GeneralRule) -> str:
    """A description of a rule, in a sentence."""
    sources, targets = rule.candidate.sources, rule.candidate.targets
    if len(sources) > 1:
        shared = set(sources[0].args) & set(sources[1].args)
        of = " that share an operand" if shared and all(term.is_input for term in shared) else ""
        how = [op for op in dict.fromkeys(_ops(targets)) if op not in set(map(_op, sources))]
        text = f"{_sentence(_several([_op(term) for term in sources]))}{of} are computed at once"
        return text + (f", by way of {' and '.join(f'`{op}`' for op in how)}." if how else ".")
    (source,), (target,) = sources, targets
    if target.is_leaf:
        return f"{_phrase(source)} is a constant." if target.item else f"{_phrase(source)} changes nothing."
    ops, others = _ops(sources), _ops(targets)
    if _bare(source) == _bare(target):
        return f"{_phrase(source)} is the same with other attributes."
    if ops == others and len(set(ops)) == 1:
        if len(ops) == 1:
            return f"The operands of `{ops[0]}` may be exchanged."
        same = _leaves(source) == _leaves(target)
        return f"Several `{ops[0]}` may be {'bracketed' if same else 'arranged'} in another way."
    return f"{_phrase(source)} is {_phrase(target)}."


def _op(term: Term) -> str:
    return term.item.short.lower() if term.item else "input"


def _ops(roots: Sequence[Term]) -> list[str]:
    """The operators of a graph, by name; the outputs of one application once."""
    nodes = dict.fromkeys(term.node for term in subterms(roots) if term.item)
    return sorted(item.short.lower() for item, _ in nodes)


def _leaves(term: Term) -> list[Term]:
    return [term] if term.is_leaf else [leaf for arg in term.args for leaf in _leaves(arg)]


def _bare(term: Term) -> object:
    """A term without its attributes."""
    return (_op(term), term.output, *map(_bare, term.args)) if term.item else term


def _several(names: Sequence[str]) -> str:
    counted = Counter(names)
    return "_and_".join(f"{_NUMBERS.get(n, str(n))}_{name}" if n > 1 else name for name, n in counted.items())


def _words(term: Term) -> str:
    inner = [_op(arg) if arg.is_leaf else _words(arg) for arg in term.args if arg.item]
    return f"{_op(term)}_of_{_several(inner)}" if inner else _op(term)


def _by(sources: Sequence[Term], targets: Sequence[Term]) -> str:
    """The operators of the target that bring the sources together: neither theirs nor the one that takes it apart."""
    apart = set(map(_op, targets))
    own = {_op(term) for term in subterms(sources) if term.item}
    how = [op for op in dict.fromkeys(_op(term) for term in subterms(targets) if term.item) if op not in apart | own]
    return f"_by_{'_and_'.join(how)}" if how else ""


def _phrase(term: Term) -> str:
    inner = [arg for arg in term.args if arg.item]
    counts = Counter(map(_words, inner))
    parts = []
    for arg in inner:
        n = counts[_words(arg)]
        parts.append(f"{_NUMBERS.get(n, str(n))} {_phrase(arg)}" if n > 1 else _phrase(arg))
    return f"`{_op(term)}`" + (" of " + " and ".join(dict.fromkeys(parts)) if parts else "")


def _sentence(words: str) -> str:
    text = words.replace("_and_", " and ").replace("_", " ")
    return text[:1].upper() + text[1:]


def _short(name: str) -> str:
    """At most 72 letters, cut at a word."""
    return name if len(name) <= LONGEST else name[:LONGEST].rpartition("_")[0]
