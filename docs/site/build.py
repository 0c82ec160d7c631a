"""Writes the sources of the documentation's site, which mkdocs makes HTML of.

    python -m docs.site.build [FOLDER] [--thorough] [--repository URL]
    mkdocs build --strict -f FOLDER/mkdocs.yml

FOLDER (default: build/site) gets `mkdocs.yml`, `docs/` and then `html/`. Pages of `docs/` are taken as they are; the index of operators
and rules, commands, Python and errors are made here. Links to files of the project that are no pages lead to URL, or nowhere.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.site import commands, index, python
from docs.site.markdown import anchors, links, relinked, table
from dslc.diagnostics.registry import pages as diagnostic_pages
from dslc.semantics.installed import BUILTIN

ROOT = Path(__file__).parents[2]
#: pages that are not in docs/, and what they are on the site
OTHERS = {
    "README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md", "grammar/vocabulary.md": "reference/vocabulary.md",
}  # fmt: skip
#: files that have pages of their own
STANDING_FOR = {"rules/std": "index/operators.md", "docs/site": "contributing.md"}
NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": ("index.md", "tutorial.md", "libraries.md"),
    "How to": (
        "editor.md", "howto/operator.md", "howto/rule.md", "howto/why-not.md", "howto/deploy.md", "python.md",
        "optimize.md", "kernels.md", "derive.md",
        "generate.md", "mutants.md", "partial.md", "foreign.md", "onnx.md", "cuda.md", "cuda-kernels.md",
    ),
    "Reference": (
        "language.md", "reference/vocabulary.md", "index/operators.md", "index/onnx.md", "index/rules.md", "cli.md",
        "reference/commands.md", "reference/python.md", "diagnostics.md", "reference/errors.md", "glossary.md",
    ),
    "How it works": ("proofs.md", "limits.md", "beside.md", "security.md", "architecture.md", "words.md", "papers.md", "results.md"),
    "Project": ("contributing.md", "changelog.md"),
}  # fmt: skip

STYLE = """/* rule files and commands are read, not scrolled; printed tables keep their lines */
.language-rules pre > code, .language-bash pre > code, .language-shell pre > code, .language-console pre > code {
  white-space: pre-wrap; overflow-wrap: break-word;
}
math .pack mi, math mrow.pack > mi { font-weight: bold; }
.equations math { margin: .7em 0; }
.equations { overflow-x: auto; padding: .4em 0; }
.md-typeset table:not([class]) { font-size: .65rem; }
"""
CONFIGURATION = """site_name: dslc
site_description: A declarative rule language for tensor programs
docs_dir: docs
site_dir: html
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, content.code.copy, search.highlight]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {icon: material/weather-night, name: Dark}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {icon: material/weather-sunny, name: Light}
extra_css: [style.css]
hooks: [hooks.py]
plugins: [search]
markdown_extensions:
  - tables
  - attr_list
  - toc
  - pymdownx.superfences
  - pymdownx.highlight: {pygments_lang_class: true}
validation:
  omitted_files: info
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
nav:
"""


#: what mkdocs runs before it reads pages: it learns the language of the rules
HOOKS = """import sys

sys.path.insert(0, {root!r})
from docs.site.lexer import register

register()
"""


def pages(thorough: bool = False, repository: str = "", libraries: tuple[str, ...] = tuple(BUILTIN)) -> dict[str, str]:
    """All pages by their path on the site.

    Args:
        thorough: also prove where operators read, and describe a small use of each.
        repository: where files of the project can be seen, as `https://.../blob/main`.
    """
    out = dict(_written(repository))
    out["reference/errors.md"] = _errors(out)
    out |= dict(index.pages(index.index_of(libraries, thorough)))
    out["reference/commands.md"] = commands.page()
    out["reference/python.md"] = python.page()
    return out


def _written(repository: str) -> Iterator[tuple[str, str]]:
    sources = {ROOT / source: place for source, place in OTHERS.items()}
    sources |= {path: path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))}
    sources |= {path: f"reference/{path.name}" for path in _diagnostics()}
    places = {path.relative_to(ROOT).as_posix(): place for path, place in sources.items()} | STANDING_FOR
    for path, place in sources.items():

        def to(target: str, path: Path = path, place: str = place) -> str | None:
            file, mark, anchor = target.partition("#")
            named = posixpath.normpath(posixpath.join(path.parent.relative_to(ROOT).as_posix(), file))
            if named not in places:
                return f"{repository.rstrip('/')}/{named}" if repository else None
            return posixpath.relpath(places[named], posixpath.dirname(place) or ".") + mark + anchor

        text = path.read_text("utf-8")
        # pictures lie beside the pages
        yield place, relinked(_examples(re.sub(r"(!\[[^]]*\]\()docs/", r"\1", text)), to)


def _diagnostics() -> list[Path]:
    return sorted((ROOT / "compiler" / "diagnostics" / "pages").glob("*.md"))


def _errors(found: dict[str, str]) -> str:
    """A table of all codes, with links to their sections."""
    at: dict[str, str] = {}
    for path in _diagnostics():
        at |= {anchor[:5].upper(): f"{path.name}#{anchor}" for anchor in anchors(found[f"reference/{path.name}"])}
    rows = [(f"[{page.code}]({at[page.code]})", page.title) for page in diagnostic_pages().values()]
    return "# Errors and warnings\n\n`dslc explain CODE` prints the same.\n\n" + table(("code", "what it means"), rows)


def _examples(text: str) -> str:
    return text.replace("```rules wrong\n", "Wrong:\n\n```rules\n").replace(
        "```rules right\n", "\nRight:\n\n```rules\n"
    )


def broken(found: dict[str, str]) -> list[str]:
    """The links between pages that lead nowhere, and the pages of the navigation that are not there."""
    known = {place: anchors(text) for place, text in found.items()}
    out = [f"the navigation names {place}" for places in NAVIGATION.values() for place in places if place not in found]
    for place, text in found.items():
        for target in links(text):
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            file, _, anchor = target.partition("#")
            at = posixpath.normpath(posixpath.join(posixpath.dirname(place), file)) if file else place
            if at not in known:
                out.append(f"{place} links to {target}")
            elif anchor and anchor not in known[at]:
                out.append(f"{place} links to {target}, and {at} has no such heading")
    return out


def configuration() -> str:
    """The text of mkdocs.yml."""
    lines = []
    for heading, places in NAVIGATION.items():
        lines += [f"  - {heading}:", *(f"    - {place}" for place in places)]
    return CONFIGURATION + "\n".join(lines) + "\n"


def write(folder: Path, found: dict[str, str]) -> None:
    """Writes the sources; what was in the folder's `docs` is gone."""
    shutil.rmtree(folder / "docs", ignore_errors=True)
    for place, text in found.items():
        path = folder / "docs" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, folder / "docs")
    (folder / "docs" / "style.css").write_text(STYLE, "utf-8")
    (folder / "hooks.py").write_text(HOOKS.format(root=str(ROOT)), "utf-8")
    (folder / "mkdocs.yml").write_text(configuration(), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command line; exit code 1 where a link leads nowhere."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "site")
    parser.add_argument(
        "--thorough", action="store_true", help="prove where operators read, and describe a small use of each"
    )
    parser.add_argument("--repository", default="", metavar="URL", help="where the project's files can be seen")
    given = parser.parse_args(arguments)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    found = pages(given.thorough, given.repository)
    write(given.folder, found)
    problems = broken(found)
    print("\n".join([*problems, f"{len(found)} pages in {given.folder}, {len(problems)} links lead nowhere"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
