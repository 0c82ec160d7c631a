"""`dslc lsp` as an editor sees it: a server of its own, asked through the protocol."""

from __future__ import annotations

import asyncio
from importlib import resources
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from dslc.checking.files import check_files
from dslc.errors import SourceText
from dslc.syntax.parser import parse_with_errors
from tests.lsp.editor import Editor, edited, position, with_editor

STD = Path(str(resources.files("dslc.rules"))) / "std"

#: names that no installed library has: where one is named is looked for in the files that have it
OPERATORS = '''dslc 1
library shop 1.0.0
export double, shift

operator double(X: T[*S]) -> Y: T[*S] {
  """Twice a tensor."""
  attr folds: int = 2
  Y[*s] = X[*s] * folds
  onnx Double(X) { folds = folds }
}

operator shift(X: T[N]) -> Y: T[N] {
  """One place on."""
  attr by: int = 1
  where by >= 0
  Y[i] = X[i + by, other=0]
}
'''
RULES = '''dslc 1
import .operators (double, shift)

# é🙂: columns are counted in UTF-16
substitution twice(X: T[*S]) -> Y {
  """Two doublings are one."""
  A = double(X, folds=k)
  Y = double(A, folds=m)
  where k > 0
  =>
  Y = double(X, folds=k * m)
  verify numerics = [reassociates, nonfinite]
}

test twice {
  given  X: f32[3]
  fires  { Y = double(double(X, folds=2), folds=3) }
}
'''


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A library of two files."""
    (tmp_path / "operators.rules").write_text(OPERATORS, encoding="utf-8")
    (tmp_path / "rules.rules").write_text(RULES, encoding="utf-8")
    return tmp_path.resolve()


def names(found: list[lsp.Location]) -> list[tuple[str, int]]:
    return sorted((Path(one.uri).name, one.range.start.line) for one in found)


def test_diagnostics_are_those_of_check_after_each_edit(shop: Path) -> None:
    async def typing(editor: Editor) -> None:
        uri = editor.open("rules.rules")
        assert editor.codes(await editor.diagnostics(uri, lambda found: bool(found))) == ["W0007"]
        at = editor.texts[uri].index("k * m")
        editor.type(uri, at, "q", 1)
        found = await editor.diagnostics(uri, lambda found: len(found) > 1)
        path = shop / "probe.rules"
        path.write_text(editor.texts[uri], encoding="utf-8")
        assert editor.codes(found) == [one.code for one in check_files([path])] == ["W0007", "E0323"]
        assert found[1].range.start == position(editor.texts[uri], at)
        editor.type(uri, at, "k", 1)
        assert editor.codes(await editor.diagnostics(uri)) == ["W0007"]
        # what a file that is imported says counts as it is typed
        other = editor.open("operators.rules")
        editor.write(
            other, OPERATORS.replace("operator shift", "operator moved").replace("double, shift", "double, moved")
        )
        assert editor.codes(await editor.diagnostics(uri, lambda found: found[:1] and found[0].code == "E0202")) == [
            "E0202"
        ]

    with_editor(shop, typing)


def test_places_names_and_texts(shop: Path) -> None:
    async def asking(editor: Editor) -> None:
        uri = editor.open("rules.rules")
        client = editor.client
        there = await client.text_document_definition_async(lsp.DefinitionParams(**editor.at(uri, "A = dou|ble")))
        assert names(there) == [("operators.rules", 4)]
        context = lsp.ReferenceContext(include_declaration=True)
        found = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **editor.at(uri, "A = dou|ble"))
        )
        assert names(found) == [
            ("operators.rules", 2),
            ("operators.rules", 4),
            *[("rules.rules", n) for n in (1, 6, 7, 10, 16, 16)],
        ]
        found = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **editor.at(uri, "X, fol|ds=k)"))
        )
        assert names(found) == [("operators.rules", n) for n in (6, 7, 8)] + [
            ("rules.rules", n) for n in (6, 7, 10, 16, 16)
        ]
        # a name inside a rule is that rule's
        found = await client.text_document_references_async(
            lsp.ReferenceParams(context=context, **editor.at(uri, "where |k"))
        )
        assert names(found) == [("rules.rules", n) for n in (6, 8, 10)]
        there = await client.text_document_definition_async(lsp.DefinitionParams(**editor.at(uri, "test twi|ce")))
        assert names(there) == [("rules.rules", 4)]

        said = await client.text_document_hover_async(lsp.HoverParams(**editor.at(uri, "A = dou|ble")))
        assert "Y[*s] = X[*s] * folds" in said.contents.value
        assert "FLOPs" in said.contents.value and "ONNX: `Double`" in said.contents.value
        said = await client.text_document_hover_async(lsp.HoverParams(**editor.at(uri, "substitution twi|ce")))
        assert "Status: " in said.contents.value
        other = editor.open("operators.rules")
        said = await client.text_document_hover_async(lsp.HoverParams(**editor.at(other, "onnx Dou|ble")))
        assert "is `shop.double`" in said.contents.value

    with_editor(shop, asking)


def test_another_name_everywhere(
    shop: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    installed = tmp_path_factory.mktemp("installed")
    (installed / "far").mkdir()
    (installed / "far" / "away.rules").write_text(
        'dslc 1\nlibrary far 1.0.0\nexport unmoved\n\noperator unmoved(X: T[*S]) -> Y: T[*S] {\n  """X."""\n  Y[*s] = X[*s]\n}\n'
    )
    monkeypatch.setenv("DSLC_PATH", str(installed))

    async def renaming(editor: Editor) -> None:
        uri, client = editor.open("rules.rules"), editor.client
        change = await client.text_document_rename_async(
            lsp.RenameParams(new_name="twofold", **editor.at(uri, "A = dou|ble"))
        )
        texts = {
            Path(at).name: edited((shop / Path(at).name).read_text("utf-8"), edits)
            for at, edits in change.changes.items()
        }
        assert texts["rules.rules"] == RULES.replace("double", "twofold")
        assert texts["operators.rules"] == OPERATORS.replace("double", "twofold")
        change = await client.text_document_rename_async(
            lsp.RenameParams(new_name="factor", **editor.at(uri, "fol|ds=k)"))
        )
        assert len(change.changes[uri]) == 5
        for marked, name, why in (
            ("A = dou|ble", "shift", "a name in .* already"),
            ("A = dou|ble", "where", "no name"),
            ("where |k", "m", "another meaning in the same item"),
        ):
            with pytest.raises(JsonRpcException, match=why):
                await client.text_document_rename_async(lsp.RenameParams(new_name=name, **editor.at(uri, marked)))
        # what an installed library defines is not renamed from outside of it
        text = "dslc 1\nimport far (unmoved)\noperator f(X: T[*S]) -> Y: T[*S] {\n  Y = unmoved(X)\n}\n"
        own = editor.open("own.rules", text)
        with pytest.raises(JsonRpcException, match="not in a folder that is open"):
            await client.text_document_rename_async(lsp.RenameParams(new_name="ramp", **editor.at(own, "= unmo|ved")))

    with_editor(shop, renaming)
    # who asked is told why: the server's own log has nothing of it
    assert capfd.readouterr().err == ""


def test_what_may_be_typed(shop: Path) -> None:
    async def completing(editor: Editor) -> None:
        uri = editor.open("rules.rules")

        async def labels(text: str) -> list[str]:
            before, after = text.split("|")
            editor.write(uri, before + after)
            at = lsp.CompletionParams(lsp.TextDocumentIdentifier(uri), position(before + after, len(before)))
            found = await editor.client.text_document_completion_async(at)
            return [one.label for one in found.items]

        assert {"std", "targets"} <= set(await labels("dslc 1\nimport s|"))
        assert {"operators"} <= set(await labels("dslc 1\nimport .|"))
        assert await labels("dslc 1\nimport .operators (d|") == ["double", "shift"]
        assert {"operator", "substitution", "import"} <= set(await labels("dslc 1\nsub|"))
        body = RULES.replace("Y = double(A, folds=m)", "Y = double(A, |)")
        assert {"folds", "double", "shift", "X", "A", "S", "sum"} <= set(await labels(body))
        assert (await labels(body)).count("folds") == 1
        # what std has comes with the import that it needs
        editor.write(uri, body.replace("|", ""))
        at = lsp.CompletionParams(lsp.TextDocumentIdentifier(uri), position(body, body.index("|")))
        found = await editor.client.text_document_completion_async(at)
        (offered,) = [one for one in found.items if one.label == "relu"]
        assert "import .operators (double, shift)\nimport std (relu)\n" in edited(
            editor.texts[uri], offered.additional_text_edits
        )
        operator = 'dslc 1\noperator f(X: T[*S]) -> Y: T[*S] {\n  """F."""\n  onnx |\n}\n'
        assert {"Conv", "MaxPool"} <= set(await labels(operator))

    with_editor(shop, completing)


def test_signatures_and_types_are_shown_while_a_call_is_typed(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def typing(editor: Editor) -> None:
        uri, client = editor.open("rules.rules"), editor.client
        cut = RULES[: RULES.index("folds=k * m)")]
        editor.write(uri, cut)
        document = lsp.TextDocumentIdentifier(uri)
        found = await client.text_document_signature_help_async(
            lsp.SignatureHelpParams(document, position(cut, len(cut)))
        )
        assert [one.label for one in found.signatures] == ["double(X: T[*S], folds: int = 2) -> Y: T[*S]"]
        assert found.active_parameter == 1
        text = RULES.replace("folds=k)", "folds=3)").replace(", folds=m", "").replace("folds=k * m", "folds=6")
        editor.write(uri, text)
        whole = lsp.Range(position(text, 0), position(text, len(text)))
        shown = await client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole))
        assert [(one.position.line, one.label) for one in shown] == [(4, ": T[*S]"), (6, ": T[*S]")]
        # a command that is not called as it has to be is refused, too
        with pytest.raises(JsonRpcException, match="Expected"):
            await client.workspace_execute_command_async(lsp.ExecuteCommandParams("dslc.status", [uri]))

    with_editor(shop, typing)
    assert capfd.readouterr().err == ""


def test_edits_symbols_colours_and_lenses(shop: Path) -> None:
    async def editing(editor: Editor) -> None:
        uri, client = editor.open("rules.rules"), editor.client
        document = lsp.TextDocumentIdentifier(uri)
        loose = RULES.replace("  where k > 0", "      where k>0").replace("\n", "\r\n")
        editor.write(uri, loose)
        options = lsp.FormattingOptions(2, True)
        edits = await client.text_document_formatting_async(lsp.DocumentFormattingParams(document, options))
        assert edited(loose, edits) == RULES.replace("\n", "\r\n")
        editor.write(uri, RULES)

        found = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document))
        assert [(one.name, one.detail) for one in found] == [("twice", "substitution"), ("twice", "test")]
        coloured = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(document))
        assert len(coloured.data) % 5 == 0 and len(coloured.data) > 100

        (unused,) = await editor.diagnostics(uri, lambda found: len(found) == 1)
        wanted = lsp.CodeActionParams(document, unused.range, lsp.CodeActionContext([unused]))
        offered = await client.text_document_code_action_async(wanted)
        assert [one.title for one in offered] == ["remove `, shift`", "ignore W0007 on this line"]
        for one, text in zip(offered, ("(double)", "(double, shift)  # dslc: ignore W0007"), strict=True):
            mended = edited(RULES, one.edit.changes[uri])
            assert mended.splitlines()[1] == f"import .operators {text}"
            editor.write(uri, mended)
            assert await editor.diagnostics(uri, lambda found: not found) == []
        editor.write(uri, RULES)

        lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document))
        assert [one.command.title for one in lenses][1:] == ["run tests", "verify"]
        ran = await client.workspace_execute_command_async(lsp.ExecuteCommandParams("dslc.test", [uri, "twice"]))
        assert ran["ok"], ran["text"]

    with_editor(shop, editing)


def test_a_proof_is_told_when_it_is_made(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # proofs of earlier runs are not known here
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))

    async def proving(editor: Editor) -> None:
        uri, client = editor.open("rules.rules"), editor.client
        asked = lsp.CodeLensParams(lsp.TextDocumentIdentifier(uri))
        assert (await client.text_document_code_lens_async(asked))[0].command.title == "not proved yet"
        said = await client.text_document_hover_async(lsp.HoverParams(**editor.at(uri, "substitution twi|ce")))
        assert "Status: not proved yet." in said.contents.value
        ran = await client.workspace_execute_command_async(lsp.ExecuteCommandParams("dslc.verify", [uri, "twice"]))
        assert ran["ok"], ran["text"]
        assert (await client.text_document_code_lens_async(asked))[0].command.title == "proved"

    with_editor(shop, proving)


def test_std_as_it_is_and_cut_off() -> None:
    async def reading(editor: Editor) -> None:
        for name in ("logic", "order"):
            uri = editor.open(f"{name}.rules")
            text = editor.texts[uri]
            assert await editor.diagnostics(uri) == []
            for share in (0.2, 0.5, 0.8):
                cut = text[: int(len(text) * share)]
                editor.write(uri, cut)
                _, found = parse_with_errors(SourceText(uri, cut))
                shown = await editor.diagnostics(uri, lambda told: bool(told))
                if found:
                    assert [(one.code, one.range.start) for one in shown] == [
                        (one.code, position(cut, one.span.start)) for one in found if one.span is not None
                    ]
            editor.close(uri)
            await asyncio.sleep(0.05)
            assert not editor.published[uri][-1][1].diagnostics

    with_editor(STD.resolve(), reading)


def test_nothing_that_is_typed_ends_the_server(shop: Path) -> None:
    text = (STD / "activation.rules").read_text("utf-8")

    async def breaking(editor: Editor) -> None:
        uri = editor.open("cut.rules", text)
        hostile = [
            "",
            "\ufeffdslc 1\r\n",
            "\0" * 50,
            "é🙂" * 30,
            "(" * 300,
            '"""',
            "import " * 40,
            "dslc 1\nimport .cut\n",
            "dslc 9\r",
        ]
        cuts = [text[:k] for k in range(0, len(text), len(text) // 9)] + [
            text[k:] for k in range(0, len(text), len(text) // 4)
        ]
        for broken in [*hostile, *cuts]:
            editor.write(uri, broken)
            middle = position(broken, len(broken) // 2)
            document = lsp.TextDocumentIdentifier(uri)
            await asyncio.gather(
                editor.client.text_document_hover_async(lsp.HoverParams(document, middle)),
                editor.client.text_document_completion_async(
                    lsp.CompletionParams(document, position(broken, len(broken)))
                ),
                editor.client.text_document_definition_async(lsp.DefinitionParams(document, middle)),
                editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document)),
                editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(document)),
                editor.client.text_document_code_lens_async(lsp.CodeLensParams(document)),
            )
        alone = editor.open("alone/no.rules", "dslc 1\nimport .absent (x)\n")
        assert editor.codes(await editor.diagnostics(alone)) == ["E0203"]
        editor.write(uri, text)
        assert editor.codes(await editor.diagnostics(uri, lambda found: len(found) == 1)) == ["E0203"]
        assert not editor.client.error

    with_editor(shop, breaking)
