"""The editor's diagnostics after random edits: what they take, and whether they are those of `dslc check` of the same text.

`python -m benchmarks.editor [NAME...] [--edits N] [--seed N] [--compare]`, each NAME a file of the standard library (the largest one of
rules by default). A keystroke is timed from the edit to the first look (what an editor shows at once) and to the last one.

`--client` does it through the protocol instead: a real client opens every file of std and cuts it off at `--edits` places, asks at each
for all that an editor asks, and says how long the diagnostics took and whether the server still answers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from shutil import copytree

from dslc.checking.files import Edited, FileFindings, check_files
from dslc.prove.garbage import gc_paused
from tests.checking.test_incremental import edits, shown

STD = Path(str(resources.files("dslc.rules"))) / "std"


def quantile(values: list[float], share: float) -> float:
    """A quantile in milliseconds."""
    return 1000 * sorted(values)[min(int(len(values) * share), len(values) - 1)]


def keys(text: str, count: int, seed: int) -> list[str]:
    """Texts with one key typed somewhere, or one character gone."""
    drawn, out = random.Random(seed), []
    for number in range(count):
        at = drawn.randrange(len(text))
        out.append(text[:at] + drawn.choice("ax1 (") + text[at:] if number % 2 else text[:at] + text[at + 1 :])
    return out


def client(cuts: int, seed: int) -> int:
    """Cuts off every file of std in a real client; gives 1 where an answer failed."""
    from lsprotocol import types as lsp

    from tests.lsp.editor import Editor, position, with_editor

    drawn = random.Random(seed)
    took: list[float] = []
    failed: list[str] = []

    async def cutting(editor: Editor) -> None:
        for path in sorted(editor.folder.glob("*.rules")):
            uri = editor.open(path.name)
            text = editor.texts[uri]
            for _ in range(cuts):
                cut = text[: drawn.randrange(len(text))]
                begin = time.perf_counter()
                editor.write(uri, cut)
                await editor.diagnostics(uri)
                took.append(time.perf_counter() - begin)
                document, at = lsp.TextDocumentIdentifier(uri), position(cut, len(cut))
                asked = {
                    "hover": editor.client.text_document_hover_async(lsp.HoverParams(document, at)),
                    "completion": editor.client.text_document_completion_async(lsp.CompletionParams(document, at)),
                    "signature": editor.client.text_document_signature_help_async(
                        lsp.SignatureHelpParams(document, at)
                    ),
                    "types": editor.client.text_document_inlay_hint_async(
                        lsp.InlayHintParams(document, lsp.Range(lsp.Position(0, 0), at))
                    ),
                    "definition": editor.client.text_document_definition_async(lsp.DefinitionParams(document, at)),
                    "symbols": editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document)),
                    "colours": editor.client.text_document_semantic_tokens_full_async(
                        lsp.SemanticTokensParams(document)
                    ),
                    "lenses": editor.client.text_document_code_lens_async(lsp.CodeLensParams(document)),
                }
                for name, answer in zip(
                    asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True
                ):
                    if isinstance(answer, BaseException):
                        failed.append(f"{path.name} at {len(cut)}: {name}: {answer}")
            editor.close(uri)

    with tempfile.TemporaryDirectory() as folder:
        with_editor(Path(copytree(STD, Path(folder).resolve() / "std")), cutting)
    print(
        f"{len(took)} texts, diagnostics after ms: "
        + ", ".join(f"{100 * q:g} % {quantile(took, q):.0f}" for q in (0.5, 0.95, 1))
    )
    print("\n".join(failed) or "every question was answered")
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["conv_rules"])
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--compare", action="store_true", help="random edits of all kinds, compared with a check from scratch"
    )
    parser.add_argument(
        "--client", action="store_true", help="through the protocol, over all files of std cut off anywhere"
    )
    given = parser.parse_args()
    if given.client:
        return client(given.edits, given.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, gc_paused():
        std = Path(copytree(STD, Path(folder).resolve() / "std"))
        for name in given.names:
            path = std / f"{name}.rules"
            text = path.read_text("utf-8")
            files = Edited()
            files.edit(path, text)
            files.findings(path)
            first, last = [], []
            for edited in (edits if given.compare else keys)(text, given.edits, given.seed):
                begin = time.perf_counter()
                files.edit(path, edited)
                looks = files.looks(path)
                look: FileFindings = next(looks)
                first.append(time.perf_counter() - begin)
                for look in looks:  # noqa: B007
                    pass
                last.append(time.perf_counter() - begin)
                if given.compare:
                    path.write_text(edited, encoding="utf-8")
                    if [shown(one) for one in look.findings] != [shown(one) for one in check_files([path])]:
                        wrong += 1
                        Path(f"{name}.differs.{wrong}.rules").write_text(edited, encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            for kind, found in (("first", first), ("last", last)):
                at = ", ".join(f"{100 * share:g} % {quantile(found, share):.0f}" for share in (0.5, 0.9, 0.95, 0.99, 1))
                print(
                    f"{name}: {kind} look after {len(found)} edits, ms: {at} (mean {1000 * statistics.mean(found):.0f})"
                )
    if given.compare:
        print(f"{wrong} of them differ from `dslc check`")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
