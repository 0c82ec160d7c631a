"""Loading libraries: files, imports, exports, and the qualified names of everything they define.

A library is a folder of `.rules` files; the file with a `library` line is its root. A lone file is a library of its own, named by its
stem. Imports stay inside the library's folder or name an installed library (entry points of the group `dslc.libraries`).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dslc.errors import Diagnostic, DslcError, Fix, SourceText, Span, closest, did_you_mean, error, instead, suggested
from dslc.semantics.assuming import Assuming
from dslc.semantics.definitions import (
    NO_TRAITS,
    DerivationDef,
    FunctionDef,
    LoweringDef,
    Module,
    OnnxClause,
    OperatorDef,
    PropertyDef,
    RulesetDef,
    SubstitutionDef,
    TestDef,
    Traits,
)
from dslc.semantics.installed import BUILTIN, find_library, libraries
from dslc.semantics.trait_laws import OF_ONE, OF_TWO, trait_laws
from dslc.syntax import tree as t
from dslc.syntax.kept import parse_kept
from dslc.syntax.parser import read_source
from dslc.syntax.vocabulary import KEYWORDS, TRAITS

HEAD = 20_000  #: characters within which a file's `library` line and imports stand
TREES = 256  #: trees that a process keeps


@dataclass(frozen=True, eq=False, repr=False)
class Rules:
    """Everything that the loaded libraries define, by qualified name; immutable."""

    modules: tuple[Module, ...] = ()
    operators: Mapping[str, OperatorDef] = field(default_factory=dict)
    substitutions: Mapping[str, SubstitutionDef] = field(default_factory=dict)
    onnx: Mapping[str, tuple[OnnxClause, ...]] = field(default_factory=dict)
    traits: Mapping[str, Traits] = field(default_factory=dict)
    laws: Mapping[str, PropertyDef] = field(default_factory=dict)
    derivations: Mapping[str, DerivationDef] = field(default_factory=dict)
    lowerings: Mapping[str, LoweringDef] = field(default_factory=dict)
    tests: tuple[TestDef, ...] = ()
    rulesets: Mapping[str, RulesetDef] = field(default_factory=dict)
    #: decides conditions on unknown sizes, where there is one
    assuming: Assuming | None = None
    #: folders whose files were all asked for, so that each belongs to the folder's library
    folders: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        libraries = ", ".join(dict.fromkeys(module.library for module in self.modules))
        counts = [f"{len(found)} {kind}" for kind, found in self._kinds[:4] if found]
        return f"<Rules of {libraries}: {', '.join(counts)}>"

    @property
    def _kinds(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return (
            ("operators", self.operators), ("substitutions", self.substitutions), ("laws", self.laws),
            ("derivations", self.derivations), ("lowerings", self.lowerings), ("rule sets", self.rulesets),
        )  # fmt: skip

    @functools.cached_property
    def digest(self) -> str:
        """Hash of the texts of all files."""
        total = hashlib.sha256()
        for module in sorted(self.modules, key=lambda m: m.name):
            total.update(module.name.encode() + b"\0" + module.file.source.text.encode() + b"\0")
        return total.hexdigest()

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_table

        libraries = sorted({module.library for module in self.modules})
        rows = [(name, len(found), ", ".join(sorted(found))) for name, found in self._kinds if found]
        return fragment_of_table(f"Rules of {', '.join(libraries)}", ("kind", "how many", "names"), rows)

    def traits_of(self, operator: str) -> Traits:
        return self.traits.get(operator, NO_TRAITS)

    def operator(self, name: str) -> OperatorDef:
        """By qualified name, or by a short name that only one library uses.

        Raises:
            DslcError: E0201 where there is none or more than one.
        """
        if name in self.operators:
            return self.operators[name]
        found = [op for op in self.operators.values() if op.short == name]
        if len(found) == 1:
            return found[0]
        if found:
            options = ", ".join(op.name for op in found)
            raise error("E0201", f"`{name}` is defined by several libraries", hint=f"say one of {options}")
        raise error(
            "E0201",
            f"no operator is named `{name}`",
            hint=did_you_mean(name, [o.short for o in self.operators.values()]),
        )


def rules_cache(rules: Rules, name: str) -> dict[Any, Any]:
    """A cache that lives as long as the rules do."""
    caches: dict[str, dict[Any, Any]] = rules.__dict__.setdefault("_caches", {})
    return caches.setdefault(name, {})


class Files:
    """Source of libraries' texts and trees: the disk. An editor has some of its own."""

    def tree(self, path: Path) -> t.File:
        """Raises DslcError with all that is wrong with the file's text."""
        source = read_source(path)
        return _tree(source.path, source.text)

    def has(self, path: Path) -> bool:
        return path.is_file()

    def head(self, path: Path) -> str:
        """The first characters of a file, in which its `library` line and its imports stand."""
        return path.read_text(encoding="utf-8", errors="replace")[:HEAD]


#: the last module of each file and library
_KNOWN: WeakValueDictionary[tuple[Path, str], Module] = WeakValueDictionary()


class _Loader:
    """Reads files once, follows imports, refuses circles."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.modules: dict[Path, Module] = {}
        self.libraries: dict[str, Path] = {}
        #: folders that were asked for as such, or by the name of their library
        self.whole: dict[Path, None] = {}
        self._open: list[Path] = []
        #: of a folder the files that its library has
        self._members: dict[Path, frozenset[Path]] = {}
        self._roots: dict[Path, t.LibraryDecl | None] = {}

    def has(self, path: Path) -> bool:
        return self._files.has(path)

    def library(self, folder: Path, span: Span | None = None) -> list[Module]:
        files = sorted(folder.glob("*.rules"))
        if not files:
            raise error("E0203", f"no `.rules` file in {folder}", span)
        self.whole[folder.resolve()] = None
        return [self.module(path, span) for path in files]

    def part(self, folder: Path, path: Path, span: Span | None = None) -> Module:
        """One file of a library that is asked for by name."""
        if not self._belongs(path.resolve()):
            self.whole[folder.resolve()] = None
        return self.module(path, span)

    def module(self, path: Path, span: Span | None = None) -> Module:
        # most are asked for by the name that they are kept under
        path = path if path in self.modules else path.resolve()
        if path in self._open:
            circle = " -> ".join(p.stem for p in (*self._open[self._open.index(path) :], path))
            raise error("E0207", f"circular import: {circle}", span, hint="move the shared definitions to a third file")
        if path in self.modules:
            return self.modules[path]
        file = self._files.tree(path)
        name = self._library_name(path, file, span)
        module = Module(f"{name}.{path.stem}", name, file)
        self._open.append(path)
        try:
            _Binder(self, module, path).run()
        finally:
            self._open.pop()
        # caches by definition outlive one load
        known = _KNOWN.get((path, name))
        if not known or not known.like(module):
            known = _KNOWN[path, name] = module
        self.modules[path] = known
        return known

    def _library_name(self, path: Path, file: t.File, span: Span | None) -> str:
        root = file.header.library
        if not root:
            root = self.root_of(path.parent) if path.parent in self.whole else self._belongs(path)
        name = root.name if root else path.stem
        home = path.parent if root else path
        if self.libraries.setdefault(name, home) != home:
            raise error(
                "E0208",
                f"two libraries are named `{name}`: {self.libraries[name]} and {home}",
                file.header.library.span if file.header.library else span,
                hint="rename one of them: a library's name is part of every rule's identity",
            )
        return name

    def _belongs(self, path: Path) -> t.LibraryDecl | None:
        """The library of a file without a `library` line: one whose file names it, itself or through files that it names.

        Any other file of the folder stands alone, and so do the mistakes of its neighbours.
        """
        folder = path.parent
        if folder not in self._members:
            self._members[folder] = _members(self._files, folder)
        return self.root_of(folder) if path in self._members[folder] else None

    def root_of(self, folder: Path) -> t.LibraryDecl | None:
        """The `library` line among the files of a folder, read without parsing whole files."""
        if folder not in self._roots:
            path = _root_file(self._files, folder)
            self._roots[folder] = self._files.tree(path).header.library if path else None
        return self._roots[folder]

    def resolve(self, item: t.Import, importer: Path) -> list[Module]:
        """The modules that an import names: one file, or all files of a library."""
        if item.relative:
            path = importer.parent / (item.module.replace(".", "/") + ".rules")
            if not self.has(path):
                raise error("E0203", f"no file `{path.name}` beside {importer.name}", item.span)
            return [self.module(path, item.span)]
        otherwise = "`pip install` it, or import a sibling file with a leading dot"
        return self.installed(item.module, "", otherwise, item.span)

    def installed(self, name: str, also: str, otherwise: str, span: Span | None = None) -> list[Module]:
        """The modules of a library, or of one file of it, by a dotted name."""
        folder, rest = find_library(name)
        if not folder:
            hint = did_you_mean(name, libraries(), otherwise)
            raise error("E0203", f"no library `{name}` is installed{also}", span, hint=hint)
        if not rest:
            return self.library(folder, span)
        path = folder / (rest.replace(".", "/") + ".rules")
        if span and not path.is_file():
            raise error("E0203", f"library `{name}` has no file `{path.name}`", span)
        return [self.part(folder, path, span)]


@functools.lru_cache(TREES)
def _tree(path: str, text: str) -> t.File:
    """A file's tree, one object for one text: libraries share those of what they import."""
    return parse_kept(SourceText(path, text))


_SIBLING = re.compile(r"import\s+\.(\w+)")


def _lines(files: Files, path: Path) -> list[str]:
    """The lines of a file's head without comments."""
    return [line.split("#")[0].strip() for line in files.head(path).splitlines()]


def _root_file(files: Files, folder: Path) -> Path | None:
    """The file of a folder that has a `library` line."""
    for path in sorted(folder.glob("*.rules")):
        if any(line.startswith("library ") for line in _lines(files, path)):
            return path
    return None


def _members(files: Files, folder: Path) -> frozenset[Path]:
    """The file with a `library` line, and those that it names, itself or through others."""
    root = _root_file(files, folder)
    reached, left = set(), [root] if root else []
    while left:
        at = left.pop()
        reached.add(at)
        named = {folder / f"{match[1]}.rules" for line in _lines(files, at) if (match := _SIBLING.match(line))}
        left += [one for one in named - reached if one.is_file()]
    return frozenset(reached)


class _Binder:
    """Fills a module's names: its own definitions, then its imports."""

    def __init__(self, loader: _Loader, module: Module, path: Path) -> None:
        self._loader = loader
        self._module = module
        self._path = path
        self._findings: list[Diagnostic] = []

    def run(self) -> None:
        module = self._module
        for item in module.file.items:
            if isinstance(item, t.Operator | t.Function):
                kind: Any = OperatorDef if isinstance(item, t.Operator) else FunctionDef
                if item.name in KEYWORDS:
                    self._find("E0205", f"`{item.name}` is a reserved word", item.span)
                if item.name in module.names:
                    self._find("E0204", f"`{item.name}` is defined twice in this file", item.span)
                module.names[item.name] = kind(f"{module.library}.{item.name}", item, module)
        library = module.file.header.library
        for need in library.requires if library else ():
            self._findings.extend(_unmet(self._loader, need))
        for imported in module.file.header.imports:
            try:
                self._import(imported)
            except DslcError as failure:
                self._findings.extend(failure.diagnostics)
        if self._findings:
            raise DslcError(self._findings)

    def _find(self, code: str, message: str, span: Span, hint: str = "", fix: Fix | None = None) -> None:
        self._findings.append(Diagnostic(code, message, span, hint=hint, fix=fix))

    def _import(self, item: t.Import) -> None:
        sources = self._loader.resolve(item, self._path)
        if item.names is None:
            alias = item.alias or item.module.rsplit(".", 1)[-1]
            if len(sources) > 1:
                joined = Module(item.module, sources[0].library, sources[0].file)
                for source in sources:
                    joined.names.update({n: d for n, d in source.names.items() if d.module is source})
                sources = [joined]
            self._module.aliases[alias] = sources[0]
            return
        for name in item.names:
            place = word_of(item, name)
            found = next((s.names[name] for s in sources if name in s.names and s.names[name].module is s), None)
            if not found:
                # a rule or test is imported for its effect, not as a name
                if not any(getattr(each, "name", None) == name for s in sources for each in s.file.items):
                    close = closest(name, [n for s in sources for n in s.names])
                    hint, fix = suggested(close), instead(place, name, close)
                    self._find("E0202", f"`{item.module}` has no `{name}`", place, hint, fix)
                continue
            if name.startswith("_"):
                self._find("E0206", f"`{name}` is private to its file", place)
            if self._module.names.setdefault(name, found) is not found:
                self._find("E0204", f"`{name}` is defined here and imported", place)
            self._module.names[name] = found


def _unmet(loader: _Loader, need: t.Requires) -> list[Diagnostic]:
    """Return whether an installed library has a version that a `requires` line allows."""
    folder, rest = find_library(need.library)
    if not folder or rest:
        hint = "`pip install` the package that brings it"
        return [Diagnostic("E0211", f"no library `{need.library}` is installed", need.span, hint=hint)]
    root = loader.root_of(folder)
    version = root.version if root else "0"
    have = Version(version)
    for bound in need.spec.split(","):
        sign = bound.strip()[:2]
        if not SpecifierSet(bound.strip()).contains(have, prereleases=True):
            message = f"`{need.library}` is installed as {version}, and {need.spec} is required"
            way = "a newer version of" if sign == ">=" else "an older version of"
            hint = f"install {way} the package that brings `{need.library}`, one with {need.library} {need.spec}"
            return [Diagnostic("E0211", message, need.span, hint=hint)]
    return []


def word_of(item: t.Import, name: str) -> Span:
    """Position of a name in an import."""
    names = item.span.text.find("(")
    found = re.search(rf"\b{re.escape(name)}\b", item.span.text[names:]) if names >= 0 else None
    if not found:
        return item.span
    return Span(item.span.source, item.span.start + names + found.start(), item.span.start + names + found.end())


def without(item: t.Import, name: str) -> Fix | None:
    """The edit that takes a name out of an import, or the whole import of a library where it has no other.

    None where a comment is in the way.
    """
    span, place = item.span, word_of(item, name)
    text, source = span.text, span.source
    if "#" in text or place is item.span or item.names is None:
        return None
    if len(item.names) == 1:
        # a relative import may be what makes its file a part of the library: without names it is still one
        kept = len(text.partition("(")[0].rstrip()) if item.relative else 0
        end = span.end + (not kept and source.text[span.end : span.end + 1] == "\n")
        return Fix(Span(source, span.start + kept, end), "")
    start, end = place.start - span.start, place.end - span.start
    behind = re.compile(r"\s*,\s*").match(text, end)
    if behind:
        return Fix(Span(source, place.start, span.start + behind.end()), "")
    before = re.search(r"\s*,\s*$", text[:start])
    return Fix(Span(source, span.start + before.start(), place.end), "") if before else None


#: items that are found by their name, and what they define
_DEFINED: Mapping[type[t.Node], Callable[..., Any]] = {
    t.Operator: OperatorDef, t.Substitution: SubstitutionDef, t.Property: PropertyDef, t.Derivation: DerivationDef,
    t.Lowering: LoweringDef, t.Ruleset: RulesetDef,
}  # fmt: skip


def join(modules: Iterable[Module]) -> Rules:
    """All definitions of some modules.

    Raises:
        DslcError: E0204 where one library defines a name twice.
    """
    tables: dict[type[t.Node], dict[str, Any]] = {kind: {} for kind in _DEFINED}
    onnx: dict[str, list[OnnxClause]] = {}
    tests: list[TestDef] = []
    is_lines: list[tuple[t.PropertyIs, Module]] = []
    findings: list[Diagnostic] = []
    modules = tuple(dict.fromkeys(modules))

    def clause(line: t.OnnxMap | t.OnnxDef, module: Module, operator: OperatorDef | None = None) -> None:
        statements, value = (line.statements, line.value) if isinstance(line, t.OnnxDef) else ((), None)
        found = OnnxClause(line.op, line.since, line.until, line.inputs, line.outputs, line.attrs, statements, value, operator,
                           module, line)  # fmt: skip
        onnx.setdefault(line.op, []).append(found)

    for module in modules:
        for item in module.file.items:
            name = f"{module.library}.{getattr(item, 'name', '')}"
            if isinstance(item, t.OnnxDef):
                clause(item, module)
            elif isinstance(item, t.PropertyIs):
                is_lines.append((item, module))
            elif isinstance(item, t.Test):
                tests.append(TestDef(name, item, module))
            elif type(item) in _DEFINED:
                definition: Any = _DEFINED[type(item)](name, item, module)
                if isinstance(item, t.Operator):
                    definition = module.names[item.name]
                    for line in item.statements:
                        if isinstance(line, t.OnnxMap):
                            clause(line, module, definition)
                other = tables[type(item)].setdefault(name, definition)
                if other.module is not definition.module or other.syntax is not definition.syntax:
                    findings.append(Diagnostic("E0204", f"`{name}` is defined twice", item.span))
                tables[type(item)][name] = definition
    traits: dict[str, Traits] = {}
    laws = tables[t.Property]
    for is_line, module in is_lines:
        _add_traits(traits, is_line, module, findings)
        for law in trait_laws(is_line, module):
            laws.setdefault(law.name, law)
    if findings:
        raise DslcError(findings)
    return Rules(
        modules, tables[t.Operator], tables[t.Substitution], {op: tuple(clauses) for op, clauses in onnx.items()}, traits, laws,
        tables[t.Derivation], tables[t.Lowering], tuple(tests), tables[t.Ruleset],
    )  # fmt: skip


def _add_traits(traits: dict[str, Traits], line: t.PropertyIs, module: Module, findings: list[Diagnostic]) -> None:
    target = module.lookup(line.name)
    if not isinstance(target, OperatorDef):
        findings.append(Diagnostic("E0201", f"no operator is named `{line.name}` here", line.span))
        return
    values: dict[str, Any] = {**vars(traits.get(target.name, NO_TRAITS))}
    count = len(target.params)

    def wrong(code: str, message: str, hint: str = "") -> None:
        findings.append(Diagnostic(code, message, trait.span, hint=hint))

    for trait in line.traits:
        name, value = trait.name, trait.value
        other = module.lookup(value.id) if isinstance(value, t.Name) else None
        if name not in TRAITS:
            wrong("E0209", f"`{name}` is no trait of an operator", did_you_mean(name, TRAITS))
        elif (name in OF_TWO and count != 2) or (name in OF_ONE and count != 1):
            wanted = "two operands" if name in OF_TWO else "one operand"
            wrong("E0209", f"`{name}` is a trait of operators with {wanted}, and `{target.short}` has {count}")
        elif isinstance(other, OperatorDef):
            values["named"] = {**values["named"], name: other.name}
            if name == "inverse":
                values["inverse"] = other.name
        elif isinstance(value, t.Name):
            wrong("E0201", f"no operator is named `{value.id}` here")
        elif name in {"identity", "absorbing", "zero"}:
            number = Fraction(value.text) if isinstance(value, t.Float) else getattr(value, "value", None)
            values["absorbing" if name == "zero" else name] = number if isinstance(value, t.Int | t.Float) else None
        elif name in {"associative", "commutative", "idempotent", "involution"} and not value:
            values[name] = True
        else:
            wrong("E0209", f"`{name}` is no trait of an operator")
    traits[target.name] = Traits(**values)


def load(path_or_name: str | Path) -> Rules:
    """A library with everything that it imports.

    Args:
        path_or_name: `std`, the name of an installed library, a folder, or a `.rules` file.

    Raises:
        DslcError: syntax errors, unknown names, circular imports.
    """
    return load_many([path_or_name])


def load_many(names: Iterable[str | Path], whole: Iterable[Path] = (), files: Files | None = None) -> Rules:
    """Several libraries joined; what they import is loaded too (and its rules are part of the result).

    Args:
        whole: folders of which every file belongs to the folder's library, whether the library's file names it or not.
        files: where texts come from; the disk.
    """
    loader = _Loader(files or Files())
    loader.whole.update((folder.resolve(), None) for folder in whole)
    for name in names:
        path = Path(name)
        # dslc's own libraries are asked for by name wherever one is
        if path.is_dir() and name not in BUILTIN:
            loader.library(path)
        elif path.suffix != ".rules" and not path.is_file():
            loader.installed(str(name), ", and there is no such file", "the name of a rule file ends in .rules")
        elif loader.has(path):
            loader.module(path)
        else:
            raise error("E0203", f"there is no file {path}")
    return replace(join(loader.modules.values()), folders=tuple(loader.whole))


def modules_of(rules: Rules, names: Iterable[str]) -> list[Module]:
    """The modules that files, folders and libraries name; what they import is not meant."""
    given = [(name, Path(name).resolve() if Path(name).exists() and name not in BUILTIN else None) for name in names]

    def meant(module: Module) -> bool:
        return any(
            path in (module.place, module.place.parent) if path else name in (module.library, module.name)
            for name, path in given
        )

    return list(filter(meant, rules.modules))


@functools.cache
def standard() -> Rules:
    """The standard library."""
    return load("std")
