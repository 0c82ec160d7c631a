"""`dslc lsp`: the language server, for editors."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.option("--stdio", is_flag=True, help="Use standard input and output (the default, and the only way).")
def command(stdio: bool) -> int:
    """Start the language server for rule files. Editors start it, and talk to it over standard input and output."""
    try:
        from dslc.lsp.server import server
    except ImportError as missing:
        from dslc.errors import error

        if (missing.name or "").partition(".")[0] not in {"pygls", "lsprotocol"}:
            raise
        message, hint = f"`dslc lsp` needs the package {missing.name}", "`pip install 'dslc[lsp]'`"
        raise error("E0907", message, hint=hint) from None
    if sys.stdin.isatty():
        click.echo("waiting for an editor; Ctrl-C ends this", err=True)
    # whatever prints into the standard output otherwise would be read as a message
    with os.fdopen(os.dup(0), "rb") as stdin, os.fdopen(os.dup(1), "wb") as stdout:
        os.dup2(2, 1)
        server().start_io(stdin, stdout)
    return 0
