"""A small shell that ends groups of processes when this process is gone, by whatever end: its input is then closed.

What is halted sees no end of its own input, and a compiler reads none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading

#: `+ N` adds a group and `- N` removes it; those that are left at the end of the input are ended
_SHELL = """
while read -r sign group; do
  if [ "$sign" = + ]; then groups="$groups $group"; continue; fi
  left=
  for one in $groups; do [ "$one" = "$group" ] || left="$left $one"; done
  groups=$left
done
for one in $groups; do kill -s KILL -- "-$one"; done
"""


class _Guard:
    """This process' guard; a fork gets its own when it has a group."""

    def __init__(self) -> None:
        # the collector of garbage may end a process in the middle of this
        self._turn = threading.RLock()
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forked)

    def add(self, group: int) -> None:
        """A group that is to end with this process. Where there is no shell it may outlive it."""
        with self._turn:
            self._groups.add(group)
            if self._shell is None or not self._told(f"+ {group}\n"):
                self._start()

    def remove(self, group: int) -> None:
        """A group that is ended by this process: its number may be another's from now on, and lines are read in their order."""
        with self._turn:
            self._groups.discard(group)
            self._told(f"- {group}\n")

    def _start(self) -> None:
        shell = shutil.which("sh")
        with contextlib.suppress(OSError):
            self._shell = None if shell is None else subprocess.Popen(
                (shell, "-c", _SHELL), cwd="/", bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            for group in tuple(self._groups):
                self._told(f"+ {group}\n")

    def _told(self, line: str) -> bool:
        if self._shell is None or self._shell.stdin is None:
            return False
        try:
            self._shell.stdin.write(line.encode())
        except OSError:
            return False
        return True

    def _forked(self) -> None:
        shell, self._shell = self._shell, None
        self._turn, self._groups = threading.RLock(), set()
        if shell is not None and shell.stdin is not None:
            # its input ends with the process that it was started by, which alone may wait for it
            shell.stdin.close()
            shell.returncode = 0


GUARD = _Guard()
