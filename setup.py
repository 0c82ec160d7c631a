"""The build step that `pyproject.toml` has no words for: dslc is installed with its own libraries parsed.

Whatever is missing for it (the parser generator, where a build is not isolated) leaves the installation without; it then parses itself.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
#: what reads rule files, as it lies in the repository and in the package; it needs nothing of the rest
READER = {
    "compiler/version.py": "version.py", "compiler/folders.py": "folders.py", "compiler/errors.py": "errors.py",
    "compiler/outside.py": "outside.py", "compiler/records.py": "records.py", "compiler/store.py": "store.py",
    "compiler/syntax": "syntax",
    "grammar": "grammar", "rules": "rules",
}  # fmt: skip


class Build(build_py):
    def run(self) -> None:
        super().run()
        base = ROOT / "compiler" if self.editable_mode else Path(self.build_lib) / "dslc"
        place = base / "syntax" / "shipped.bin"
        try:
            parsed(place.resolve())
        except (OSError, subprocess.SubprocessError) as problem:
            place.unlink(missing_ok=True)
            print(f"dslc is built without its libraries parsed: {problem}", file=sys.stderr)


def parsed(place: Path) -> None:
    """Writes what dslc's own libraries are parsed to."""
    with tempfile.TemporaryDirectory() as temporary:
        package = Path(temporary) / "dslc"
        package.mkdir()
        (package / "__init__.py").touch()
        for here, there in READER.items():
            copy = shutil.copytree if (ROOT / here).is_dir() else shutil.copy
            copy(ROOT / here, package / there)
        path = os.pathsep.join([temporary, *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "dslc.syntax.shipping", str(place)]
        # of what its user keeps nothing takes part
        alone = {"PYTHONPATH": path, "DSLC_CACHE": temporary}
        subprocess.run(command, env={**os.environ, **alone}, check=True, timeout=300)


setup(cmdclass={"build_py": Build})
