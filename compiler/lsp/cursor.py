"""A place in a document by the tokens before it: the text is being typed, and need not be whole."""

from __future__ import annotations

import string

from dslc.lsp.declarations import dotted
from dslc.lsp.names import item_at, scanned
from dslc.lsp.session import DocumentView
from dslc.syntax.scan import ITEM_WORDS, Token
from dslc.syntax.vocabulary import KEYWORDS

_LETTERS = f"{string.ascii_letters}{string.digits}_"
#: keywords that begin a statement: none of them stands in a call
_BEGINS = KEYWORDS - set("if else and or not forall in inf".split())
#: words before a name that is defined there
_DEFINES = frozenset("operator property substitution lowering onnx let term".split())


class Cursor:
    """A place in a document. A word that is half typed there does not count."""

    def __init__(self, view: DocumentView, offset: int) -> None:
        self.view, self.offset = view, offset
        typed = len(view.source.text[:offset].rstrip(_LETTERS))
        self.seen = scanned(view.source)
        self.tokens = [token for token in self.seen.tokens if token.end <= typed]
        chunk = [one for one in self.seen.chunks if one.start < max(offset, 1)][-1]
        #: where the item at hand begins, and its keyword: from the text, for it may not be readable
        self.begin, self.word = chunk.start, ""
        brackets = [token.kind for token in self.tokens if token.start >= chunk.start]
        if chunk.word in ITEM_WORDS and brackets.count("open") > brackets.count("close"):
            self.word = "substitution" if chunk.word == "partial" else chunk.word
        self.item = item_at(view, offset)

    @property
    def in_text(self) -> bool:
        """Inside a comment, a string or documentation."""
        # a comment and what is never closed go on with what is typed
        ends = {"comment": 1, "open_string": 1, "open_doc": 1, "string": 0, "doc": 0}
        texts = (
            one for one in (*self.seen.comments, *self.seen.tokens) if one.kind in ends and one.start < self.offset
        )
        return any(one.text == '"""' or self.offset < one.end + ends[one.kind] for one in texts)

    def last(self, back: int = 1) -> Token:
        """A token before the place."""
        return self.tokens[-back] if len(self.tokens) >= back else Token("end", "", 0, True)

    def call(self) -> tuple[str, list[list[str]]] | None:
        """The name that is called by the innermost open parenthesis, and the texts in each argument up to the place."""
        arguments: list[list[str]] = [[]]
        depth = 0
        for at in range(len(self.tokens) - 1, 0, -1):
            token, before = self.tokens[at], self.tokens[at - 1]
            depth += (token.kind == "close") - (token.kind == "open")
            if depth < 0 and token.text == "(" and before.kind == "word" and before.text not in KEYWORDS:
                start, parts = dotted(self.tokens, at - 1)
                defined = start and self.tokens[start - 1].text in _DEFINES
                return None if defined else (".".join(parts), arguments[::-1])
            if depth < 0:
                arguments, depth = [[]], 0
            elif not depth and token.text == ",":
                arguments.append([])
            elif token.line_start and token.text in _BEGINS and arguments[-1][:1] not in (["="], ["."]):
                return None
            else:
                arguments[-1].insert(0, token.text)
        return None
