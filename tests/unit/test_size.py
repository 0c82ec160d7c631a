"""The balance: code tokens of each package, a fixed sum that may only fall."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from tests.unit.test_numbers_of_modules import modules

#: code tokens by package, without docstrings, comments and blank lines. A package that grows takes its tokens from others' rows
#: in the same commit; what is saved is banked here.
TOKENS = {
    "analysis": 14_884, "api": 16_348, "catalogue": 1_703, "checking": 13_426, "cli": 20_135, "codegen": 76_755,
    "cost": 37_576, "cuda": 38_880, "derivation": 50_511, "diagnostics": 2_166, "dslc": 10_939, "egraph": 24_482,
    "foreign": 31_737, "fuse": 25_604, "generate": 52_036, "inspection": 10_361, "interpret": 41_271, "ir": 26_350,
    "lsp": 16_580, "match": 38_373, "mutate": 28_557, "onnx": 63_514, "processes": 3_378, "prove": 132_706,
    "reporting": 8_157, "search": 87_825, "semantics": 69_857, "syntax": 23_776,
}  # fmt: skip
#: tokens of all packages: may fall, never rise
SUM = 967_887
#: what counts for nothing: layout and comments
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING,
}  # fmt: skip


def code_tokens(text: str) -> int:
    """Tokens of a module's code."""
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(text))
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
