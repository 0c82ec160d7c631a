"""Servers for tests, forked from one process that has imported what they need and has std: each would load it again.

Where an editor starts `dslc lsp`, it starts this with the name of that process's socket: its ends go there, and it ends
with the server.
"""

from __future__ import annotations

import os
import select
import socket
import sys

#: a whole environment
LONGEST = 1 << 20


def ask(name: str) -> None:
    """Have a server forked that reads and writes what this process would, and wait for its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect("\0" + name)
        environment = "\0".join(f"{key}={value}" for key, value in os.environ.items())
        socket.send_fds(asked, [environment.encode("utf-8", "surrogateescape")], [0, 1, 2])
        for end in (0, 1):
            os.close(end)
        asked.recv(1)


def serve(name: str) -> None:
    """Fork a server for each process that asks, until the standard input ends."""
    import gc

    from dslc.cli.main import run
    from dslc.errors import SourceText
    from dslc.lsp.server import server
    from dslc.semantics.library import standard
    from dslc.syntax.parser import parse_with_errors

    assert standard() and server() and parse_with_errors(SourceText("", "dslc 1\nimport std (relu)\n"))
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen()
    print(flush=True)
    forks: list[int] = []
    while listener in select.select([listener, 0], [], [])[0]:
        asked, _ = listener.accept()
        data, ends, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if pid := os.fork():
            forks.append(pid)
        else:
            listener.close()
            for number, end in enumerate(ends):
                os.dup2(end, number)
                os.close(end)
            os.environ.clear()
            os.environ.update(one.partition("=")[::2] for one in data.decode("utf-8", "surrogateescape").split("\0"))
            os._exit(run(["lsp"]))
        for end in ends:
            os.close(end)
        asked.close()
        forks = [pid for pid in forks if os.waitpid(pid, os.WNOHANG)[0] == 0]
    for pid in forks:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    {"ask": ask, "serve": serve}[sys.argv[1]](sys.argv[2])
