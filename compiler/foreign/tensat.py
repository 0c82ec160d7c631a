"""TENSAT's rule text: `(source)=>(target)` a line, two lines a rule in multi-pattern files, and the older `f(a,b)==g(c)`.

The older form may follow without a break. Arguments that are numbers, and variables where a number belongs, are parameters;
which parameter depends on how many there are, as TENSAT's own files use several arities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dslc.foreign import rule as limits
from dslc.foreign.rule import ForeignRule, Operator, Output, Parameter, RuleTensor, checked, damaged
from dslc.records import record

_POOL = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti")
_KERNEL = ("kernel_h", "kernel_w")
#: kind -> name here, how many tensors, and the parameters in front of and behind them; shorter files leave out the last ones
_FORMS: dict[str, tuple[str, int, tuple[str, ...], tuple[str, ...]]] = {
    "ew_add": ("ewadd", 2, (), ()),
    "ew_mul": ("ewmul", 2, (), ()),
    "mul": ("smul", 2, (), ()),
    "matmul": ("matmul", 2, ("acti",), ()),
    "transpose": ("transpose", 1, (), ("perm", "outshuffle")),
    "conv2d": ("conv2d", 2, ("stride_h", "stride_w", "pad", "acti"), ()),
    "enlarge": ("enlarge", 2, (), ()),
    "relu": ("relu", 1, (), ()),
    "tanh": ("tanh", 1, (), ()),
    "sigmoid": ("sigmoid", 1, (), ()),
    "pool2d_max": ("poolmax", 1, (), _POOL),
    "pool2d_avg": ("poolavg", 1, (), _POOL),
    "split": ("split", 1, ("axis",), ()),
    "merge_gconv": ("merge", 1, (), ("merge_gconv_count",)),
    "reshape": ("reshape", 1, (), ("shape",)),
    "batchnorm": ("batchnorm", 5, (), ()),
    "constant_iconv": ("Iconv", 0, _KERNEL, ()),
    "constant_pool": ("Cpool", 0, _KERNEL, ()),
    "constant_imm": ("Imatmul", 0, (), ()),
    "constant_one": ("Iewmul", 0, (), ()),
}
# other names in TENSAT's and TASO's older texts
_ALIASES = {
    "scalar_mul": "mul", "const_iconv": "constant_iconv", "const_pool": "constant_pool", "const_imm": "constant_imm",
    "const_one": "constant_one", "pool2d_max": "pool2d_max", "pool2d_avg": "pool2d_avg",
}  # fmt: skip
_KINDS = {name: kind for kind, (name, *_) in _FORMS.items()} | _ALIASES
_TOKEN = re.compile(r"\s*(=>|==|[()]|[^\s(),=]+)")
_NUMBER = re.compile(r"-?\d{1,9}")
_NUMBERED = re.compile(r"input_(\d{1,6})")


DEEPEST = 200  #: how deep terms may be nested


class _Wrong(Exception):
    """A text that is no rule."""


@record
class _Term:
    head: str
    args: tuple[_Term, ...] | None  # None for an atom


class _Words:
    """The words of a text of terms `(f a b)`."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise _Wrong(f"`{text[at : at + 20].strip()}` is no part of a rule")
            self.words.append(found[1])
            at = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        word = self.peek()
        if not word or (wanted and word != wanted):
            raise _Wrong(
                f"{f'`{word}`' if word else 'the end'} stands where {f'`{wanted}`' if wanted else 'a term'} should"
            )
        self.at += 1
        return word

    def term(self, depth: int = 0) -> _Term:
        """`(f a b)`, or an atom."""
        if depth > DEEPEST:
            raise _Wrong(f"terms are nested more than {DEEPEST} deep")
        word = self.take()
        if word == "(":
            head = self.take()
            args = []
            while self.peek() != ")":
                args.append(self.term(depth + 1))
            self.take(")")
            return _Term(head, tuple(args) if args or not _is_variable(head) else None)
        if word in {")", "=>", "=="}:
            raise _Wrong(f"`{word}` stands where a term should")
        return _Term(word, None)


def _is_variable(word: str) -> bool:
    return word.startswith(("?", "input_"))


@dataclass
class _Side:
    """Equal terms become one operator."""

    names: _Names
    operators: dict[Operator, int] = field(default_factory=dict)

    def add(self, op: Operator) -> RuleTensor:
        at = self.operators.setdefault(op, len(self.operators))
        if at >= limits.MOST_OPERATORS:
            raise _Wrong(f"a side of more than {limits.MOST_OPERATORS} operators")
        return RuleTensor(at)

    def tensor(self, term: _Term) -> RuleTensor:
        head, args = term.head, term.args
        if args is None:
            if _is_variable(head):
                return RuleTensor(self.names.number(head))
            if _NUMBER.fullmatch(head):
                raise _Wrong(f"the number {head} stands where a tensor should")
            args = ()
        if head in {"split_0", "split_1"}:
            inner = args[0] if len(args) == 1 and args[0].head == "split" else _Term("split", args)
            if inner.args is None or len(inner.args) != 2:
                raise _Wrong(f"`{head}` wants a split")
            return RuleTensor(self.tensor(inner).operator, int(head[-1]))
        if head in {"concat", "concat2", "concat3", "concat4", "concat5"}:
            return self._concat(head, args)
        kind = _KINDS.get(head, head)
        form = _FORMS.get(kind)
        if form is None:
            return self._unknown(head, args)
        _, count, before, after = form
        if len(args) < count:
            raise _Wrong(f"`{head}` has {len(args)} arguments and wants {count} tensors")
        front, behind = self._parted(head, args, count, len(before), len(after))
        if kind == "enlarge" and len(args) == 3:  # (enlarge 3 3 w): to a kernel of this size
            parameters = tuple(zip(_KERNEL, map(_parameter, args[:2]), strict=True))
            return self.add(Operator(kind, (self.tensor(args[2]),), parameters))
        if kind.startswith("pool2d") and front and not behind:  # the older order: numbers first
            before, after = after, ()
        parameters = (
            *zip(before, map(_parameter, args[:front]), strict=False),
            *zip(after, map(_parameter, args[front + count :]), strict=False),
        )
        return self.add(Operator(kind, tuple(map(self.tensor, args[front : front + count])), parameters))

    def _parted(self, head: str, args: tuple[_Term, ...], count: int, before: int, after: int) -> tuple[int, int]:
        """The numbers of arguments that are parameters, in front of the tensors and behind them."""
        extra = len(args) - count
        front = 0
        while front < extra and (_NUMBER.fullmatch(args[front].head) or (before == extra and not after)):
            front += 1
        most = before if not head.startswith("pool") else max(before, after)
        if head == "enlarge":
            return (2, 0) if extra == 1 else (0, 0) if extra == 0 else self._too_many(head, len(args))
        if front > most or extra - front > after:
            self._too_many(head, len(args))
        return front, extra - front

    def _too_many(self, head: str, count: int) -> tuple[int, int]:
        raise _Wrong(f"`{head}` cannot have these {count} arguments")

    def _concat(self, head: str, args: tuple[_Term, ...]) -> RuleTensor:
        front = 0
        while front < len(args) and args[front].args is None and _NUMBER.fullmatch(args[front].head):
            front += 1
        if front == 0 and len(args) >= 4 and all(a.args is None and a.head.startswith("?") for a in args[:2]):
            front = 2  # (concat ?axis ?ndim a b)
        if not 1 <= front <= 2 or len(args) - front != int(head[6:] or 2):
            raise _Wrong(f"`{head}` cannot have these {len(args)} arguments")
        parameters = tuple(zip(("axis", "numdim"), map(_parameter, args[:front]), strict=False))
        return self.add(Operator("concat", tuple(map(self.tensor, args[front:])), parameters))

    def _unknown(self, head: str, args: tuple[_Term, ...]) -> RuleTensor:
        """An operator without a form here keeps its arguments: numbers as parameters, with their places."""
        inputs, parameters = [], []
        for at, arg in enumerate(args):
            if arg.args is None and _NUMBER.fullmatch(arg.head):
                parameters.append((f"{at}", _parameter(arg)))
            else:
                inputs.append(self.tensor(arg))
        return self.add(Operator(head, tuple(inputs), tuple(parameters)))


def _parameter(term: _Term) -> Parameter:
    if term.args is not None:
        raise _Wrong(f"`({term.head} ...)` stands where a number should")
    return int(term.head) if _NUMBER.fullmatch(term.head) else term.head


class _Names:
    """Numbers of variables: `?input_4` is -4 as in TASO's file, others take what is free."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        name = word.removeprefix("?")
        if name not in self._numbers:
            found = _NUMBERED.fullmatch(name)
            number = -int(found[1]) if found and found[1] == str(int(found[1])) else 0
            taken = set(self._numbers.values())
            while number == 0 or number in taken:
                number = min(number, min(taken, default=0)) - 1
            self._numbers[name] = number
        return self._numbers[name]

    def table(self) -> tuple[tuple[int, str], ...]:
        """The names that do not follow from their numbers."""
        return tuple((number, name) for name, number in self._numbers.items() if name != f"input_{-number}")


_Line = tuple[tuple[_Term, ...], tuple[_Term, ...]]


def _roots(term: _Term) -> tuple[_Term, ...]:
    """`(noop a b)` joins outputs."""
    if term.head == "noop" and term.args:
        return tuple(root for arg in term.args for root in _roots(arg))
    return (term,)


def _lines(text: str) -> Iterator[_Line]:
    """The equations of a file, in either form."""
    if "=>" in text:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith(("#", "//", ";")):
                continue
            try:
                words = _Words(line)
                source = words.term()
                words.take("=>")
                target = words.term()
                if words.peek():
                    raise _Wrong(f"`{words.peek()}` stands after the rule")
            except _Wrong as problem:
                raise _Wrong(f"line {number}: {problem}") from None
            yield _roots(source), _roots(target)
        return
    # `f(a,b)` as `(f a b)`
    words = _Words(re.sub(r"([^\s(),=]+)\(", r"(\1 ", text).replace(",", " "))
    count = 0
    while words.peek():
        try:
            source = words.term()
            words.take("==")
            target = words.term()
        except _Wrong as problem:
            raise _Wrong(f"after {count} equations: {problem}") from None
        count += 1
        yield _roots(source), _roots(target)


def _variables(terms: Iterable[_Term]) -> set[str]:
    found: set[str] = set()
    todo = list(terms)
    while todo:
        term = todo.pop()
        if term.args is None and _is_variable(term.head):
            found.add(term.head)
        todo.extend(term.args or ())
    return found


def read(data: bytes, path: str = "", pairs: bool | None = None) -> tuple[ForeignRule, ...]:
    """The rules of a TENSAT text.

    Args:
        pairs: whether two lines are one rule; None: they are where some target has a variable that its source lacks.

    Raises:
        DslcError: E1001 for text of another form, and beyond the limits.
    """
    if len(data) > limits.MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {limits.MOST_BYTES} that are read")
    try:
        lines: list[_Line] = []
        for line in _lines(data.decode("utf-8")):
            lines.append(line)
            if len(lines) > limits.MOST_RULES:
                raise _Wrong(f"more than {limits.MOST_RULES} rules")
        if pairs is None:
            pairs = any(_variables(target) - _variables(source) for source, target in lines)
        if pairs and len(lines) % 2:
            raise _Wrong(f"two lines are one rule in a multi-pattern file, and there are {len(lines)}")
        groups = list(zip(lines[::2], lines[1::2], strict=True)) if pairs else [(line,) for line in lines]
        rules = [_rule(group) for group in groups]
    except UnicodeDecodeError as problem:
        raise damaged(path, f"not UTF-8: {problem.reason} at byte {problem.start}") from None
    except _Wrong as problem:
        raise damaged(path, f"not a file of TENSAT's rules: {problem}") from None
    return checked(path, rules)


def _rule(group: tuple[_Line, ...]) -> ForeignRule:
    names = _Names()
    source, target = _Side(names), _Side(names)
    outputs = []
    for left, right in group:
        if len(left) != len(right):
            raise _Wrong(f"{len(left)} outputs on the left and {len(right)} on the right")
        for a, b in zip(left, right, strict=True):
            outputs.append(Output(source.tensor(a), target.tensor(b)))
    return ForeignRule("", tuple(source.operators), tuple(target.operators), tuple(outputs), names.table())
