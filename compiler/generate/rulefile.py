"""The library that a generation writes: formatted, documented, with a test for each rule and the statistics in its header."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dslc.errors import Source
from dslc.generate.general import GeneralRule, operators_of, rule_text, short_names
from dslc.generate.naming import described, named
from dslc.generate.term import Term
from dslc.generate.text import Writer, declared, is_default, output_names, tensor_names, written
from dslc.ir.dtype import DType
from dslc.semantics.library import Rules
from dslc.syntax.printer import format_source

#: so many rules have a test each; of more, every n-th
_TESTS = 1500


def library_text(
    rules: Rules, found: Sequence[GeneralRule], header: Sequence[str], statuses: Mapping[GeneralRule, str], inside: str = ""
) -> str:
    """The text of a `.rules` file.

    Args:
        header: lines of the comment on top.
        statuses: what the provers said of each rule; those that are not proved for all shapes are tagged.
        inside: the name of the library that the file will be part of, if it will.
    """
    used = [item.op for item in operators_of(found)]
    operators = short_names(used)
    lines = ["dslc 1", *(f"# {line}".rstrip() for line in header), ""]
    lines += _imports(rules, operators, inside)
    names = named(found)
    in_order = sorted(found, key=lambda rule: (rule.size, names[rule]))
    lines.append(f"export {', '.join(names[rule] for rule in in_order)}" if in_order else "")
    groups: dict[int, list[GeneralRule]] = defaultdict(list)
    for rule in in_order:
        groups[rule.size].append(rule)
    every = max(1, -(-len(in_order) // _TESTS))
    for size, group in groups.items():
        lines += ["", f"# ---- {size} operator{'s' * (size != 1)}: {len(group)} rules {'-' * 60}"]
        for rule in group:
            tags = ", ".join(["generated", *(["bounded"] if statuses.get(rule) == "bounded" else [])])
            lines += ["", rule_text(rules, rule, names[rule], operators, described(rule), tags)]
    for k, rule in enumerate(in_order):
        if k % every == 0:
            lines += ["", fires_text(rules, rule, names[rule], operators)]
    for size, group in groups.items():
        lines += ["", f"ruleset size_{size} {{", f'"""Rules with {size} operators on their larger side."""',
                  f"include {', '.join(names[rule] for rule in group)}", "}"]  # fmt: skip
    return format_source(Source("generated.rules", "\n".join(lines) + "\n"))


def _imports(rules: Rules, operators: Mapping[str, str], inside: str) -> list[str]:
    """One line for each file that operators come from; whole libraries where two operators have one name."""
    modules: dict[str, list[str]] = defaultdict(list)
    for op, short in operators.items():
        module = rules.operators[op].module
        own = module.library == inside
        path = f".{module.name.rpartition('.')[2]}" if own else module.name if not _lone(module.name, module.library) else module.library
        if "." in short:
            modules.setdefault(module.library, [])
        else:
            modules[path].append(short)
    out = []
    for path, names in sorted(modules.items()):
        out.append(f"import {path} ({', '.join(sorted(names))})" if names else f"import {path} as {path}")
    return out


def _lone(module: str, library: str) -> bool:
    """Whether a file is a library of its own."""
    return module == f"{library}.{library}"


def fires_text(rules: Rules, rule: GeneralRule, name: str, operators: Mapping[str, str]) -> str:
    """A test in which the rule applies, at the sizes at which it was found."""
    names = tensor_names(rule.candidate)

    def attribute(term: Term, name: str, value: Any) -> str | None:
        assert term.item is not None
        if isinstance(value, DType):
            return str(value)
        return None if is_default(declared(rules, term.item, name), value) else written(value)

    writer = Writer(rules, names, operators, attribute)
    given = ", ".join(f"{label}: {term.type.dtype}[{', '.join(map(str, term.type.shape))}]" for term, label in names.items())
    binds = "\n".join(writer.statements(rule.candidate.sources, output_names(rule.candidate)))
    return "\n".join([f"test {name} {{", *([f"given {given}"] if given else []), f"fires {{ {binds} }}", "}"])


def write_file(path: Path, text: str) -> None:
    """Written to a temporary name, then renamed: a file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
