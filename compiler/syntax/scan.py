"""A first look at a file: comments, brackets and where items begin, so that one broken item costs one item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dslc.errors import Diagnostic, Fix, Label, SourceText, Span
from dslc.records import record
from dslc.syntax.vocabulary import KEYWORDS

MAX_NESTING = 100  #: how deep brackets may nest
MAX_FINDINGS = 100  #: findings after which a file is given up
MAX_RESCANNED = 1_000_000  #: tokens that are looked at again, in all, after brackets that stayed open
#: digits of a number, which is computed with exactly: a short text could stand for one that fills the memory
MAX_DIGITS = 100
MAX_EXPONENT = 400  #: exponent of a number

ITEM_WORDS = frozenset("operator property substitution partial derivation lowering test ruleset onnx let".split())
#: item keywords that occur nowhere else, so that they begin an item even where a bracket stayed open
_ITEM_ONLY = frozenset("operator property substitution partial derivation lowering test ruleset".split())
HEADER_WORDS = frozenset("dslc library import export".split())

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\f\r\n]+)
      | (?P<comment>\#[^\n]*)
      | (?P<doc>\"\"\"[\s\S]*?\"\"\")
      | (?P<open_doc>\"\"\")
      | (?P<string>"[^"\n]*")
      | (?P<open_string>"[^\n]*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\d+(?:\.\d+)*(?:[eE][-+]?\d+)?)
      | (?P<open>[\[({])
      | (?P<close>[\])}])
      | (?P<sign><=>|==|!=|<=|>=|=>|~=|->|\*\*|//|\+\+|[-+*/%@^|&<>=.,:])
      | (?P<bad>[^\s])""",
    re.X,
)
#: what is no text even in comments and documentation: controls of a terminal, and of the direction of writing
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: what other languages and word processors write, and what is written here
_OURS = {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "⇒": "=>", ";": "",
         "!": "not ", "~": "~=", "“": '"', "”": '"'}  # fmt: skip
_WRITTEN = {
    "−": "write `-`", "–": "write `-`", "×": "write `*`", "·": "write `*`", "÷": "write `/`", "≤": "write `<=`", "≥": "write `>=`",
    "≠": "write `!=`", "→": "write `->`", "⇒": "write `=>`", ";": "statements need no separator",
    "?": "a choice is written `a if c else b`", "!": "write `not`", "~": "equal up to rounding is `~=`",
    "'": 'text stands in double quotes: `"..."`', "“": 'text stands in straight quotes: `"..."`',
    "”": 'text stands in straight quotes: `"..."`',
}  # fmt: skip
# Documentation that swallows the beginning of another item was most likely never closed.
_SWALLOWED = re.compile(rf"^(?:{'|'.join(sorted(_ITEM_ONLY))})\s+[A-Za-z_]\w*\s*[({{]", re.M)
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPENER = {closer: opener for opener, closer in _CLOSER.items()}


@record
class Token:
    """A word, number, sign, bracket, text or comment with its place."""

    kind: str
    text: str
    start: int
    line_start: bool

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@record
class Chunk:
    """One item's stretch of text (or the header's); `broken`: it was reported, and is not worth parsing."""

    start: int
    end: int
    word: str
    broken: bool


@dataclass(slots=True)
class Scan:
    """Tokens, comments, stretches of items, and findings of a text."""

    tokens: list[Token] = field(default_factory=list)
    comments: list[Token] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)


def _raw_tokens(text: str) -> Iterator[Token]:
    at, line_start = 0, True
    while at < len(text):
        found = _TOKEN.match(text, at)
        kind = str(found.lastgroup) if found else "bad"
        value = found[0] if found else text[at]
        if kind == "doc" or kind == "open_doc":
            swallowed = _SWALLOWED.search(text, at + 3, found.end() if found and kind == "doc" else len(text))
            if swallowed:
                kind, value = "open_doc", text[at : swallowed.start()]
        if kind == "blank":
            line_start = line_start or "\n" in value
        else:
            yield Token(kind, value, at, line_start)
            line_start = False
        at += len(value)


def _lexical(source: SourceText, token: Token) -> Diagnostic | None:
    """Check a token by itself."""

    def wrong(code: str, message: str, start: int, end: int, hint: str = "", text: str | None = None) -> Diagnostic:
        span = Span(source, token.start + start, token.start + end)
        return Diagnostic(code, message, span, hint=hint, fix=None if text is None else Fix(span, text))

    word = token.text
    if token.kind == "bad":
        number = f"U+{ord(word):04X}"
        shown = f"`{word}` ({number})" if word.isprintable() else number
        hint = _WRITTEN.get(word, "")
        if not hint and word.isspace():
            hint = "write an ordinary blank"
        if not hint and word.isalpha():
            hint = "names are made of the letters A to Z and a to z, digits and `_`"
        text = " " if word.isspace() else _OURS.get(word)
        return wrong("E0102", f"the character {shown} is not part of the language", 0, len(word), hint, text)
    if token.kind == "number":
        digits, _, exponent = word.lower().partition("e")
        if len(digits) > MAX_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MAX_EXPONENT:
            message = f"a number has at most {MAX_DIGITS} digits and an exponent of at most {MAX_EXPONENT}"
            return wrong("E0118", message, 0, len(word))
    if token.kind in {"comment", "doc", "string"} and (hidden := _HIDDEN.search(word)):
        hint = "it is no text: it changes how a terminal or an editor shows what stands around it"
        message = f"the character U+{ord(hidden[0]):04X} is not part of the language"
        return wrong("E0102", message, *hidden.span(), hint)
    if token.kind == "open_string":
        return wrong("E0111", "this string is never closed", 0, 1, 'a string ends on its line with `"`')
    if token.kind == "open_doc":
        return wrong("E0112", "this documentation is never closed", 0, 3, 'it ends with `"""`')
    return None


class _Splitter:
    """Follows brackets and cuts the tokens at the beginnings of items."""

    def __init__(self, source: SourceText, scan: Scan) -> None:
        self._source = source
        self._scan = scan
        self._tokens = scan.tokens
        self._stack: list[int] = []
        self._restarts: list[int] = []
        self._start = 0
        self._word = "dslc"
        self._broken = False
        self._equals = self._lets = 0
        self._rescanned = 0

    def _begins_item(self, index: int) -> bool:
        token = self._tokens[index]
        before = self._tokens[index - 1] if index else None
        after = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
        if not token.line_start or (before and before.text in ("partial", ".")):
            return False
        if token.text == "onnx":
            return after is None or not after.text.startswith(".")
        if token.text == "let" and self._word == "onnx":
            # `let` lines belong to an `onnx` definition until its own `= value` has come.
            return self._equals > self._lets
        if token.text in ITEM_WORDS:
            return True
        if self._word != "dslc" and token.text in HEADER_WORDS:
            return True
        return before is not None and before.text == "}" and token.text not in KEYWORDS

    def _cut(self, end: int, word: str) -> None:
        self._scan.chunks.append(Chunk(self._start, end, self._word, self._broken))
        self._start, self._word, self._broken = end, word, False
        self._equals = self._lets = 0
        self._restarts.clear()

    def _report(self, code: str, message: str, token: Token, label: Token | None = None, text: str = "") -> None:
        span = Span(self._source, token.start, token.end)
        secondary = (Label(Span(self._source, label.start, label.end), text),) if label else ()
        self._scan.findings.append(Diagnostic(code, message, span, secondary=secondary))
        self._broken = True

    def _close(self, token: Token) -> None:
        opener = _OPENER[token.text]
        if self._stack and self._tokens[self._stack[-1]].text == opener:
            self._stack.pop()
            return
        if not self._stack:
            self._report("E0104", f"this `{token.text}` closes nothing", token)
            return
        inner = self._tokens[self._stack[-1]]
        self._report("E0104", f"`{token.text}` where `{_CLOSER[inner.text]}` is needed", token, inner, "opened here")
        # Either a bracket further out is closed here, and the inner ones were forgotten, or this one is a slip.
        closed = next((k for k in reversed(self._stack) if self._tokens[k].text == opener), self._stack[-1])
        while self._stack.pop() != closed:
            pass

    def run(self) -> None:
        index = 0
        while len(self._scan.findings) < MAX_FINDINGS:
            if index == len(self._tokens):
                if not self._stack:
                    break
                index = self._resume()
                continue
            token = self._tokens[index]
            if not self._step(index, token):
                if not self._scan.chunks:
                    self._cut(token.start, "")
                return
            index += 1
        self._cut(len(self._source.text), "")

    def _in_block(self) -> bool:
        return any(self._tokens[k].text == "{" for k in self._stack)

    def _resume(self) -> int:
        """Reports the innermost bracket of the item that stayed open, and goes on at the next item."""
        outer = self._stack[0]
        index = next((k for k in self._restarts if k > outer), len(self._tokens))
        token = self._tokens[max(k for k in self._stack if k < index)]
        if index < len(self._tokens):
            # The rest is scanned once more, and would be reported twice.
            begin = self._tokens[index].start
            self._scan.findings[:] = [f for f in self._scan.findings if not f.span or f.span.start < begin]
        # A string or documentation that stayed open has most likely swallowed the closing bracket.
        since = self._tokens[outer].start
        if not any(f.code in ("E0111", "E0112") and f.span and f.span.start > since for f in self._scan.findings):
            self._report("E0103", f"this `{token.text}` is never closed", token)
        self._broken = True
        self._stack.clear()
        self._rescanned += len(self._tokens) - index
        if self._rescanned > MAX_RESCANNED:
            return len(self._tokens)
        if index < len(self._tokens):
            self._cut(self._tokens[index].start, self._tokens[index].text)
            return index + 1
        return index

    def _step(self, index: int, token: Token) -> bool:
        if token.kind == "word":
            column_1 = token.start == 0 or self._source.text[token.start - 1] == "\n"
            if self._stack and column_1 and token.text in ITEM_WORDS and not self._in_block():
                # No item and no statement begins between parentheses.
                inner = self._tokens[self._stack[-1]]
                self._report("E0103", f"this `{inner.text}` is never closed", inner)
                self._stack.clear()
            if not self._stack and self._begins_item(index):
                self._cut(token.start, token.text)
            elif self._stack and column_1 and token.text in _ITEM_ONLY:
                self._restarts.append(index)
            elif not self._stack and token.text == "let":
                self._lets += 1
        elif token.kind == "open":
            self._stack.append(index)
            if len(self._stack) > MAX_NESTING:
                self._report("E0109", f"brackets are nested more than {MAX_NESTING} deep", token)
                return False
        elif token.kind == "close":
            self._close(token)
        elif token.text == "=" and not self._stack:
            self._equals += 1
        finding = _lexical(self._source, token)
        if finding:
            self._scan.findings.append(finding)
            self._broken = True
        return True


def scan(source: SourceText) -> Scan:
    """Tokens, comments and chunks of a text; the first chunk is the header."""
    found = Scan()
    for token in _raw_tokens(source.text):
        (found.comments if token.kind == "comment" else found.tokens).append(token)
        if token.kind == "comment" and (finding := _lexical(source, token)):
            found.findings.append(finding)
    _Splitter(source, found).run()
    return found


def header_chunks(source: SourceText, tokens: Sequence[Token], end: int) -> list[Chunk]:
    """The statements of a header; one that begins with no word of a header is cut off too, to be reported by itself."""
    starts: list[Token] = []
    depth = 0
    for index, token in enumerate(tokens):
        if token.start >= end:
            break
        depth += (token.kind == "open") - (token.kind == "close")
        continued = index > 0 and tokens[index - 1].text == ","
        column_1 = token.start == 0 or source.text[token.start - 1] == "\n"
        if token.text in HEADER_WORDS and token.line_start and not depth:
            starts.append(token)
        elif token.text == "requires" and starts and starts[-1].text == "library":
            continue
        elif not starts or (column_1 and token.kind == "word" and not depth and not continued):
            starts.append(token)
    stops = [*(token.start for token in starts[1:]), end]
    return [Chunk(token.start, stop, token.text, False) for token, stop in zip(starts, stops, strict=False)]
