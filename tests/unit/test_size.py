"""The balance: code tokens of each package, a fixed sum that may only fall."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from tests.unit.test_architecture import inside
from tests.unit.test_numbers_of_modules import modules

#: code tokens by package, without docstrings, comments and blank lines. A package that grows takes its tokens from others' rows
#: in the same commit; what is saved is banked here.
TOKENS = {
    "analysis": 14_503, "api": 16_537, "catalogue": 1_640, "checking": 13_283, "cli": 20_347, "codegen": 72_088,
    "cost": 33_887, "cuda": 37_494, "derivation": 48_708, "diagnostics": 2_152, "dslc": 11_221, "egraph": 21_689,
    "foreign": 30_044, "fuse": 24_055, "generate": 49_878, "inspection": 11_665, "interpret": 39_855, "ir": 25_609,
    "lsp": 17_746, "match": 38_052, "mutate": 27_909, "onnx": 60_843, "processes": 3_376, "prove": 119_574,
    "reporting": 8_836, "search": 86_899, "semantics": 66_901, "syntax": 23_495,
}  # fmt: skip
#: tokens of all packages: may fall, never rise
SUM = 928_286
#: what counts for nothing: layout and comments
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING,
}  # fmt: skip


def code_tokens(text: str) -> int:
    """Tokens of a module's code."""
    module = ast.parse(text)
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in (module, *inside(module.body))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False)
    }
    return sum(
        token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start in docstrings)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def test_packing_and_words_move_nothing() -> None:
    packed = "def f(a, b): return g(a, b)\n"
    loose = 'def f(\n    a, b\n):\n    """Add."""\n\n    # so it is\n    return g(a, b)\n'
    assert code_tokens(packed) == code_tokens(loose) == 15


def test_no_package_is_larger_than_its_row_and_savings_are_banked() -> None:
    found: Counter[str] = Counter()
    for place, text in modules():
        found[place.parts[0] if len(place.parts) > 1 else "dslc"] += code_tokens(text)
    rows = {name: (found[name], TOKENS.get(name, 0)) for name in {*found, *TOKENS}}
    wrong = {name: pair for name, pair in rows.items() if not 0.99 * pair[1] <= pair[0] <= pair[1]}
    assert not wrong, f"tokens found, and in the table: {wrong}"
    assert sum(TOKENS.values()) <= SUM
