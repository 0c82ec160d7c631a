"""The installed package is whole, and the README's first lines are what the gate runs."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata, resources
from pathlib import Path

import dslc

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")


def test_version_is_the_installed_one() -> None:
    assert metadata.version("dslc") == dslc.__version__


def test_entry_points() -> None:
    entries = metadata.distribution("dslc").entry_points
    assert [e.value for e in entries if e.group == "console_scripts" and e.name == "dslc"] == ["dslc.cli.main:main"]
    assert "std" in {e.name for e in entries if e.group == "dslc.libraries"}
    for entry in entries:
        entry.load()


def test_every_package_folder_is_listed() -> None:
    """A folder that setuptools is not told about would be missing from wheels, and only from them."""
    tool = PROJECT["tool"]["setuptools"]
    expected = set()
    for package, folder in tool["package-dir"].items():
        for init in (ROOT / folder).rglob("__init__.py"):
            expected.add(".".join((package, *init.parent.relative_to(ROOT / folder).parts)))
    assert set(tool["packages"]) == expected
    for package, folder in tool["package-dir"].items():
        for module in (ROOT / folder).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), f"{module} is in no package ({package})"


def test_data_files_are_inside_the_package() -> None:
    grammar = resources.files("dslc.grammar").joinpath("dslc.lark")
    assert "start:" in grammar.read_text("utf-8")
    installed = {f.name for f in resources.files("dslc.rules.std").iterdir() if f.name.endswith(".rules")}
    assert installed == {f.name for f in (ROOT / "rules" / "std").glob("*.rules")}
    assert resources.files("dslc").joinpath("py.typed").is_file()


def test_quick_start_is_two_lines_and_the_gate_runs_the_second() -> None:
    block = re.search(r"^```bash\n(.*?)^```$", README, re.M | re.S)
    assert block is not None
    optimize, tests = block[1].splitlines()
    for line in (optimize, tests):
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert "dslc optimize" in optimize
    # The gate takes its test line out of the README by this very pattern.
    gate = (ROOT / ".ci" / "run").read_text("utf-8")
    pattern = re.search(r"grep -m1 -E '([^']*)' README\.md", gate)
    assert pattern is not None
    assert [line for line in README.splitlines() if re.search(pattern[1], line)] == [tests]


def test_licence_is_apache() -> None:
    assert metadata.metadata("dslc")["License-Expression"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text("utf-8")
