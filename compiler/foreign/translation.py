"""Foreign rules in the language, over the operators of `taso`: types inferred, guards that the operators want, split positions."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dslc.errors import SourceText, error
from dslc.foreign.counterparts import (
    CONSTANTS,
    FIELDS,
    FOREIGN,
    NORMS,
    OPEN,
    OPERATORS,
    PLACES,
    POOLS,
    REDUCTIONS,
    activation,
    axes_of,
    axis_of,
    count_of,
    is_open,
    keeps_axes,
    padding,
    permutation,
    strides,
)
from dslc.foreign.rule import ForeignRule, Operator, Operators, RuleTensor
from dslc.foreign.shape_inference import Mode, Typing, convolutions
from dslc.foreign.shapes import (
    Clash,
    Dim,
    DimensionRow,
    Number,
    Shape,
    Size,
    SizeProduct,
    Sum,
    UnboundTensor,
    Windows,
    factors_of,
    parts_of,
)
from dslc.records import record
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.parser import parse
from dslc.syntax.vocabulary import CONSTANTS as RESERVED
from dslc.syntax.vocabulary import DTYPE_NAMES, KEYWORDS

_OUTPUTS = ("Y", "Z", "U", "V")
# CUDNN_BN_MIN_EPSILON, which TASO gives its batch norms
_TASO_EPSILON = "1e-5"


DEEPEST = 40  #: how deep calls are nested that are written; the language reads brackets a hundred deep

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@record
class Translation:
    """The text of a substitution, and the operators it names: (file that defines it, name).

    `guard`: what the file does not say.
    """

    name: str
    text: str
    operators: tuple[tuple[str, str], ...]
    mode: Mode
    guard: str = ""

    def guarded(self, guard: str) -> Translation:
        """The rule under a further condition."""
        left, arrow, right = self.text.partition("\n  =>\n")
        return replace(self, text=f"{left}\n  where {guard}{arrow}{right}", guard=guard)


def translations(rule: ForeignRule, name: str, doc: str) -> Iterator[Translation]:
    """The rule in the language, the most general reading first; the proofs decide which of them holds.

    Raises:
        Unknown: an operator has no counterpart.
        Unbound: the target reads a tensor that the source does not.
        Clash: no sizes fit any reading; the reason is that of the narrowest.
    """
    names = tensor_names(rule)
    own = {tensor.operator for op in rule.source for tensor in op.inputs}
    extra = [names[number] for number in rule.inputs() if number not in own]
    if extra:
        raise UnboundTensor(f"the target reads {', '.join(extra)}, which the source does not have")
    clash: Clash | None = None
    seen: set[str] = set()
    for mode in _modes(rule):
        try:
            found = _Writer(Typing(rule, mode), name, doc).translation()
        except Clash as problem:
            clash = problem
            continue
        if found.text not in seen:
            seen.add(found.text)
            yield found
    if not seen:
        raise clash or Clash("no reading")


def _modes(rule: ForeignRule) -> Iterator[Mode]:
    kinds = set(rule.kinds())
    axes = {
        "concat",
        "split",
        "transpose",
        "constant_imm",
        "replicate",
        "reduce",
        "squeeze",
        "unsqueeze",
        *REDUCTIONS,
        *OPEN,
    }
    batched = bool(kinds & {"matmul", "linear"}) and not kinds & axes
    opened = any(map(is_open, rule.operators))
    count = convolutions(rule)
    groups = [frozenset(g) for size in range(count, -1, -1) for g in itertools.combinations(range(count), size)]
    for kernels in (0, 1, 2) if kinds & {"conv2d", "enlarge", *POOLS, "constant_iconv", "constant_pool"} else (0,):
        for grouped in groups if count <= 4 else (frozenset(range(count)), frozenset[int]()):
            for batch in (True, False) if batched else (False,):
                for free in (True, False) if opened else (False,):
                    for merged in (True, False) if "merge_gconv" in kinds and grouped else (False,):
                        yield Mode(batch, grouped, kernels, free, merged)


@dataclass
class _Writer:
    typing: Typing
    name: str
    doc: str
    names: dict[Size | DimensionRow, str] = field(default_factory=dict)
    bound: set[Size | DimensionRow] = field(default_factory=set)
    used: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def rule(self) -> ForeignRule:
        return self.typing.rule

    def translation(self) -> Translation:
        if any(output.source.operator < 0 for output in self.rule.outputs):
            raise Clash("the source has no operator")
        self._tensors = tensor_names(self.rule)
        self._bind()
        params = ", ".join(f"{self._tensors[number]}: {self._type(number)}" for number in self.rule.inputs())
        count = len(self.rule.outputs)
        outputs = _OUTPUTS[:count] if count <= len(_OUTPUTS) else tuple(f"Y{k}" for k in range(count))
        left = self._side(0, outputs)
        right = self._side(1, outputs)
        guards = self._guards()
        lines = [f"substitution {self.name}({params}) -> {', '.join(outputs)} {{", f'  """{self.doc}"""']
        lines += [f"  {line}" for line in left]
        lines += [f"  where {', '.join(guards)}"] if guards else []
        lines += ["  =>", *(f"  {line}" for line in right)]
        tags = self._tags()
        lines += [f"  tags {', '.join(tags)}"] if tags else []
        return Translation(self.name, "\n".join([*lines, "}"]), tuple(self.used), self.typing.mode)

    # ---- names -------------------------------------------------------------------------------------------------

    def _name_of(self, size: Size | DimensionRow) -> str:
        if size not in self.names:
            hint = "S" if isinstance(size, DimensionRow) else size.hint
            taken = {*self.names.values(), "T", *self._tensors.values(), *_OUTPUTS}
            name, number = hint, 2
            while name in taken:
                name, number = f"{hint}{number}", number + 1
            self.names[size] = name
        return self.names[size]

    def _bind(self) -> None:
        """Collect the names that the source binds: sizes of its inputs, kernels and parts; those of the target alone are numbers."""
        unifier = self.typing.unifier
        said = [self.typing.inputs[number] for number in self.rule.inputs()]
        for at, op in enumerate(self.rule.source):
            if op.kind in ("constant_one", "reshape"):
                said.append(self.typing.results[0, at][0])
            if op.kind != "conv2d":
                said.append(Shape(self.typing.stated.get((0, at), ())))
        for shape in map(unifier.shape, said):
            self.bound.update(p for dim in shape.dims for p in parts_of(unifier.dim(dim)) if isinstance(p, Size))
            self.bound.update([shape.tail] if shape.tail else [])
        for (_, value), size in self.typing.kernels.items():
            known = unifier.dim(size)
            if isinstance(known, Size) and known not in self.bound:
                unifier.equal(known, Number(value))

    # ---- sizes -------------------------------------------------------------------------------------------------

    def _dim(self, dim: Dim, typed: bool = False) -> str:
        dim = self.typing.unifier.dim(dim)
        match dim:
            case Size():
                if dim not in self.bound:
                    raise Clash("the source does not say how large something of the target is")
                return f"*{self._name_of(dim)}" if dim.pack else self._name_of(dim)
            case Number(value):
                return str(value)
            case Sum(parts):
                return " + ".join(map(self._dim, parts))
            case SizeProduct():
                if typed:
                    return f"({', '.join(map(self._dim, factors_of(dim)))})"
                return " * ".join(map(self._factor, factors_of(dim)))
            case Windows(size, kernel, stride, same):
                if not stride:
                    raise Clash("a size depends on strides that the file does not name")
                window = "1" if same else self._factor(kernel)
                return f"({self._dim(size)} - {window}) // {stride} + 1"

    def _factor(self, dim: Dim) -> str:
        text = self._dim(dim)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def _type(self, number: int) -> str:
        return f"{self.typing.elements[number]}[{self._shape(self.typing.inputs[number], True)}]"

    def _shape(self, shape: Shape, typed: bool) -> str:
        shape = self.typing.unifier.shape(shape)
        texts = [self._dim(dim, typed) for dim in shape.dims]
        if shape.tail:
            if shape.tail not in self.bound:
                raise Clash("the source does not say how many dimensions something of the target has")
            texts.append(f"*{self._name_of(shape.tail)}")
        return ", ".join(texts)

    # ---- statements --------------------------------------------------------------------------------------------

    def _side(self, side: int, outputs: tuple[str, ...]) -> list[str]:
        """Statements in the order of the operators; what is used once is written where it is used, if that keeps the order."""
        operators = self.rule.sides[side]
        roots = [output.source if side == 0 else output.target for output in self.rule.outputs]
        uses: dict[int, int] = {}
        for tensor in (*roots, *(each for op in operators for each in op.inputs)):
            uses[tensor.operator] = uses.get(tensor.operator, 0) + 1
        nested = linear(operators, roots) == list(range(len(operators)))
        given: dict[RuleTensor, str] = {}
        for name, root in zip(outputs, roots, strict=True):
            if root.operator >= 0:
                given.setdefault(root, name)
        results = dict(given)
        lines: list[str] = []
        inner = self._inner_names(side)
        for at, op in enumerate(operators):
            count = len(self.typing.results[side, at])
            if count == 1 and nested and uses.get(at, 0) == 1 and RuleTensor(at) not in given:
                call = self._call(side, at, op, results)
                if _depth(call) <= DEEPEST:
                    results[RuleTensor(at)] = call
                    continue
            if count == 2 and nested and uses.get(at, 0) == 1:
                call = self._call(side, at, op, results)
                for output, field_name in enumerate(FIELDS.get(op.kind, ("Y", "Z"))):
                    tensor = RuleTensor(at, output)
                    if tensor not in given:
                        results[tensor] = f"{call}.{field_name}"
                    else:
                        lines.append(f"{given[tensor]} = {call}.{field_name}")
                continue
            tensors = [RuleTensor(at, k) for k in range(count)]
            for tensor in tensors:
                if tensor not in results:
                    results[tensor] = next(inner)
            lines.append(f"{', '.join(results[each] for each in tensors)} = {self._call(side, at, op, results)}")
        for name, root in zip(outputs, roots, strict=True):
            if root.operator < 0:
                lines.append(f"{name} = {self._tensors[root.operator]}")
            elif given[root] != name:
                lines.append(f"{name} = {given[root]}")
        return lines

    def _inner_names(self, side: int) -> Iterator[str]:
        for k in itertools.count(1):
            name = f"{'AB'[side]}{k}"
            if name not in self.names.values() and name not in self._tensors.values():
                self.names[Size(name)] = name
                yield name

    def _call(self, side: int, at: int, op: Operator, results: dict[RuleTensor, str]) -> str:
        # what folds into a kernel is the scale and the variance; TASO's operator has shift and mean for nothing
        inputs = (*op.inputs[:2], op.inputs[4]) if op.kind == "fuse_conv_batchnorm" else op.inputs
        args = [self._tensors[each.operator] if each.operator < 0 else results[each] for each in inputs]
        module, function, attrs = self._function(side, at, op)
        text = self._apply(module, function, [*args, *attrs])
        wanted = activation(op)
        if wanted and op.kind in {"conv2d", *POOLS} and not (op.kind == "conv2d" and wanted == "relu"):
            text = self._apply(OPERATORS, wanted, [text])
        return text

    def _apply(self, module: str, function: str, args: list[str]) -> str:
        self.used[module, function] = None
        alias = module.removeprefix("std.") + "." if module.startswith("std.") else ""
        return f"{alias}{function}({', '.join(args)})"

    def _function(self, side: int, at: int, op: Operator) -> tuple[str, str, list[str]]:
        kind = op.kind
        stated = [self._dim(d) for d in self.typing.stated.get((side, at), ())] if kind != "conv2d" else []
        module, name = PLACES[kind]
        attrs: list[str] = []
        mode = activation(op) if kind in ("matmul", "linear", "conv2d") else ""
        match kind:
            case "leakyrelu":
                attrs = ["**slope"]
            case "squeeze" | "unsqueeze":
                attrs = [f"axes=[{', '.join(map(str, axes_of(op)))}]"]
            case "reshape":
                attrs = [f"shape=[{self._shape(self.typing.results[side, at][0], False)}]"]
            case "merge_gconv":
                attrs = [f"count={count_of(op)}"]
            case "matmul" | "linear":
                module, name = (FOREIGN, "fused_matmul") if kind == "matmul" and mode else (module, name)
                attrs = [f'activation="{mode}"'] if mode else []
            case "transpose":
                order = permutation(op)
                if order == (1, 0):
                    return OPERATORS, "transpose", []
                attrs = [f"perm=[{', '.join(map(str, order))}]"]
            case "conv2d":
                attrs = [*self._window_attrs(op), *(['activation="relu"'] if mode == "relu" else [])]
            case "enlarge":
                attrs = [f"size=[{stated[0]}, {stated[1]}]"]
            case "replicate" | "reduce":
                attrs = [f"axis={axis_of(op)}", f"degree={op.get('degree')}"]
            case "concat":
                attrs = [f"axis={axis_of(op)}"]
            case "split":
                attrs = [f"axis={axis_of(op)}", f"sizes=[{', '.join(stated)}]"]
            case "constant_imm":
                attrs = ["dtype=T", f"size={stated[0]}"]
            case "constant_one":
                attrs = ["dtype=T", f"shape=[{self._shape(self.typing.results[side, at][0], False)}]"]
            case "reduce_argmax" | "reduce_argmin":
                if len(axes_of(op)) > 1:
                    raise Clash(f"`{kind}` along axes {op.get('axes')}")
                attrs = [f"axis={axes_of(op)[0]}", f"keepdims={str(keeps_axes(op)).lower()}"]
            case _ if kind in REDUCTIONS:
                attrs = [f"axes=[{', '.join(map(str, axes_of(op)))}]", f"keepdims={str(keeps_axes(op)).lower()}"]
            case _ if kind in NORMS:
                # any, the same throughout, as the file does not say it; TASO's own where only the target has one
                own = any(each.kind in NORMS for each in self.rule.source)
                attrs = [f"epsilon={'e' if own else _TASO_EPSILON}"]
            case _ if kind in OPEN:
                attrs = [f"**{OPEN[kind]}"]
            case _ if kind in POOLS:
                attrs = [f"kernel=[{', '.join(stated)}]", *self._window_attrs(op)]
            case _ if kind in CONSTANTS:
                attrs = ["dtype=T", f"channels={stated[0]}", f"kernel=[{stated[1]}, {stated[2]}]"]
        return module, name, attrs

    def _open(self, op: Operator) -> bool:
        return self.typing.mode.free and is_open(op)

    def _window_attrs(self, op: Operator) -> list[str]:
        if self._open(op):
            return ["stride=s", "padding=p"]
        first, second = strides(op)
        stride = [] if (first, second) == (1, 1) else [f"stride=[{first}, {second}]"]
        return stride + (['padding="valid"'] if padding(op) == "valid" else [])

    # ---- guards ------------------------------------------------------------------------------------------------

    def _guards(self) -> list[str]:
        """Conditions of the operators of the target on sizes, where those of the source do not want it already."""
        wanted: tuple[list[str], list[str]] = ([], [])
        for side, operators in enumerate(self.rule.sides):
            for at, op in enumerate(operators):
                dims = [self.typing.unifier.dim(d) for d in self.typing.stated.get((side, at), ())]
                if self._open(op):
                    continue
                if op.kind in {"conv2d", *POOLS} and padding(op) == "same":
                    wanted[side].extend(map(self._odd, dims))
                elif op.kind == "enlarge":
                    for new, old in ((dims[0], dims[2]), (dims[1], dims[3])):
                        wanted[side].extend(self._enlarged(new, old))
        known = {"", *wanted[0]}
        return list(dict.fromkeys(guard for guard in wanted[1] if guard not in known))

    def _odd(self, dim: Dim) -> str:
        if isinstance(dim, Number):
            if dim.value % 2 == 0:
                raise Clash(f"an even kernel of {dim.value} with padding on both sides")
            return ""
        return f"{self._factor(dim)} % 2 == 1"

    def _enlarged(self, new: Dim, old: Dim) -> list[str]:
        if new == old:
            return []
        if isinstance(new, Number) and isinstance(old, Number):
            if new.value < old.value or (new.value - old.value) % 2:
                raise Clash(f"a kernel of {old.value} is enlarged to {new.value}")
            return []
        if isinstance(new, Number) and new.value in (1, 2):
            return [f"{self._dim(old)} == {new.value}"]
        return [f"{self._dim(old)} <= {self._dim(new)}", f"({self._dim(new)} - {self._factor(old)}) % 2 == 0"]

    def _tags(self) -> list[str]:
        """Tags for parameters that an export writes again: the kernels that a rule was found on, shuffles."""
        found, shuffles = [], []
        for op in self.rule.operators:
            height, width = op.get("kernel_h"), op.get("kernel_w")
            if isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0:
                found.append(f"{height}x{width}")
            if op.kind == "transpose" and op.get("outshuffle") is not None:
                shuffles.append(str(op.get("outshuffle")))
        return ([f"kernels_{'_'.join(found)}"] if found else []) + (
            [f"shuffle_{'_'.join(shuffles)}"] if any(s != "0" for s in shuffles) else []
        )


def tensor_names(rule: ForeignRule) -> dict[int, str]:
    """`X4` for the free input -4, its own name where it has one that may be written."""
    out: dict[int, str] = {}
    given = dict(rule.names)
    for number in rule.inputs():
        own = given.get(number, "")
        free = _NAME.fullmatch(own) and own not in {*KEYWORDS, *RESERVED, *DTYPE_NAMES, *_OUTPUTS, "T"}
        clash = re.fullmatch(r"X\d+|[A-Z]\d*", own) or own in out.values()
        out[number] = own if free and not clash else f"X{-number}"
    return out


def _depth(text: str) -> int:
    """The depth to which brackets are nested."""
    return max(itertools.accumulate((char in "([") - (char in ")]") for char in text), default=0)


def linear(operators: Operators, roots: list[RuleTensor]) -> list[int]:
    """The operators in the order in which they are met from the outputs, arguments first."""
    order: list[int] = []

    def visit(at: int) -> None:
        if at < 0 or at in order:
            return
        for tensor in operators[at].inputs:
            visit(tensor.operator)
        order.append(at)

    for root in roots:
        visit(root.operator)
    return order


#: the library whose operators imported rules are written over
LIBRARY = "taso"


@functools.cache
def operators() -> Rules:
    """The definitions that imported rules may use."""
    return load_many([LIBRARY, "std"])


def definition(rules: Rules, found: Translation, library: str = "imported") -> SubstitutionDef:
    """A translated rule.

    Raises:
        DslcError: where its text does not parse or names an operator that is not loaded.
    """
    file = parse(SourceText(f"{library}.rules", f"dslc 1\n{found.text}\n"))
    (item,) = file.items
    assert isinstance(item, t.Substitution)
    module = Module(f"{library}.{library}", library, file)
    for place, name in found.operators:
        full = f"{place.partition('.')[0]}.{name}"
        if full not in rules.operators:
            raise error("E0201", f"no operator is named `{full}`")
        if place.startswith("std."):
            short = place.removeprefix("std.")
            module.aliases.setdefault(short, Module(place, "std", module.file)).names[name] = rules.operators[full]
        else:
            module.names[name] = rules.operators[full]
    return SubstitutionDef(f"{library}.{found.name}", item, module)
