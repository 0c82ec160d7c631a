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
    "analysis": 14_567, "api": 16_217, "catalogue": 1_642, "checking": 13_290, "cli": 20_019, "codegen": 72_656,
    "cost": 36_209, "cuda": 37_996, "derivation": 49_805, "diagnostics": 2_128, "dslc": 10_855, "egraph": 21_984,
    "foreign": 30_316, "fuse": 24_782, "generate": 50_217, "inspection": 10_211, "interpret": 40_300, "ir": 24_713,
    "lsp": 16_382, "match": 36_613, "mutate": 28_128, "onnx": 61_681, "processes": 3_376, "prove": 120_682,
    "reporting": 8_061, "search": 86_729, "semantics": 66_808, "syntax": 23_448,
}  # fmt: skip
#: tokens of all packages: may fall, never rise
SUM = 929_815
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
