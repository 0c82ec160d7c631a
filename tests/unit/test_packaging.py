"""The installed package is whole, and the README's first lines are what the gate runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import dslc
from dslc.prove.evidence.lock import installed
from dslc.syntax.parser import read_source, table_key
from dslc.syntax.shipped import shipped, shipped_tree

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")


def test_version_is_the_installed_one() -> None:
    assert metadata.version("dslc") == dslc.__version__


def test_entry_points() -> None:
    entries = metadata.distribution("dslc").entry_points
    assert [e.value for e in entries if e.group == "console_scripts" and e.name == "dslc"] == ["dslc.cli.entry:main"]
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


def test_an_installation_has_its_libraries_parsed() -> None:
    """The first command on a new machine parses nothing; a checkout may have been edited since."""
    if not installed(Path(dslc.__file__)):
        pytest.skip("dslc runs from a checkout")
    folder = Path(str(resources.files("dslc.rules")))
    sources = [read_source(path) for path in folder.glob("*/*.rules")]
    assert len(sources) > 30 and [source.path for source in sources if shipped_tree(source) is None] == []
    assert shipped().read(table_key()) is not None


#: what reads rule files, beside whole packages
MODULES = ("version", "folders", "errors", "outside", "records", "store")


def test_the_build_needs_nothing_but_what_it_declares(tmp_path: Path) -> None:
    """The step that parses runs without numpy, onnx and all else that dslc needs when it runs."""
    needed = {re.split(r"[<>=]", need)[0] for need in PROJECT["build-system"]["requires"]}
    assert needed == {"setuptools", "lark"}
    code = (
        "import importlib.abc, sys\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {'numpy', 'onnx', 'click', 'platformdirs', 'packaging', 'sympy', 'z3', 'islpy'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import dslc.syntax.shipping as one\nfrom pathlib import Path\nprint(one.make(Path(sys.argv[1])))\n"
    )
    package = tmp_path / "dslc"
    for part in ("syntax", "grammar", "rules"):
        # the largest of the libraries is not needed to see what is imported
        left_out = shutil.ignore_patterns("taso_generated", "__pycache__")
        shutil.copytree(Path(str(resources.files(f"dslc.{part}"))), package / part, ignore=left_out)
    for module in MODULES:
        shutil.copy(Path(dslc.__file__).with_name(f"{module}.py"), package)
    (package / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "DSLC_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(tmp_path / "shipped.bin")]
    made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0 and int(made.stdout) > 30, made.stderr
    assert {f'"compiler/{m}.py"' in (ROOT / "setup.py").read_text("utf-8") for m in MODULES} == {True}


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
