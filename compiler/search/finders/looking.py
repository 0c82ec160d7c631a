"""What is looked at where programs are sought in the place of operators: places, what was measured there, and what a report says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dslc.derivation.programs import PricedProgram
from dslc.fuse.autotune import TunedKernel
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Input, Kernel, Node, Value
from dslc.ir.holes import abstracted

TOLD = 3  #: programs that are not taken of which a report tells
LEANING = 1.1  #: so many times as slow as what was there a program without its library is slower


@dataclass(frozen=True, slots=True)
class Rival:
    """What is faster in one kind of place: the fact, the new program with its kernels, seconds before and after, by themselves."""

    fact: Fact
    program: Graph
    kernels: tuple[TunedKernel, ...]
    before: float
    after: float

    #: whether it is one kernel, of which a runtime without its library runs the nodes as they were
    whole: bool = False
    #: seconds where nobody has its library, as far as what its kernels replace was measured
    bare: float = 0.0

    @property
    def ratio(self) -> float:
        return self.before / self.after

    @property
    def leans(self) -> bool:
        """Whether it is slower than what was there where nobody has its library."""
        return self.bare > LEANING * self.before


@dataclass(frozen=True, slots=True)
class Dearer:
    """The cheapest program that was found for an operator, where none is worth building: seconds by estimate, and those of the node,
    which may be a kernel of another form (`formed`)."""

    rule: str
    words: str
    seconds: float
    price: float
    formed: bool = False


class WhyOpen(Enum):
    """Why a program at unknown sizes is left out."""

    SOME = "it holds at some sizes only"
    UNPROVED = "it is not proved for all sizes"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A program at unknown sizes that nobody may take: its derivations, and the names of these sizes."""

    rule: str
    why: WhyOpen
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tale:
    """What was looked at: nodes, programs found, priced, built, and what became of those that are not faster."""

    searched: int = 0
    found: int = 0
    measured: tuple[Rival, ...] = ()
    taken: tuple[Rival, ...] = ()
    late: bool = False
    dearer: tuple[Dearer, ...] = ()
    #: those that are one kernel
    wholes: tuple[Rival, ...] = ()
    #: those at unknown sizes that nobody may take
    left_out: tuple[LeftOut, ...] = ()

    def told(self, kernels: Collection[str], how: str = "derived by ") -> list[str]:
        """What a report says of what is taken in a candidate with these kernels; `how` goes before the rules."""
        own = dict.fromkeys((*self.taken, *self.wholes))
        return [said(one, how) for one in own if all(each.name in kernels for each in one.kernels)]

    def left(self, how: str = "derived by ") -> list[str]:
        """What a report says of what is not taken: of each place the fastest that was measured, else the cheapest by estimate."""
        own = {one.fact.old for one in self.taken}
        best: dict[Graph, Rival] = {}
        for one in self.measured:
            if one.fact.old not in own and (one.fact.old not in best or one.after < best[one.fact.old].after):
                best[one.fact.old] = one
        lines = []
        for one in list(best.values())[:TOLD]:
            was, now = one.before * 1e3, one.after * 1e3
            lines.append(
                f"{how}{one.fact.rule}, and not taken: {_words(one.program)}: {now:.4g} ms, before {was:.4g} ms by itself"
            )
        for each in self.dearer[: TOLD - len(lines)]:
            was, now = each.price * 1e3, each.seconds * 1e3
            before = "as a kernel of another form" if each.formed else "before"
            lines.append(
                f"{how}{each.rule}, and not built: {each.words}: {now:.4g} ms by estimate, {before} {was:.4g} ms"
            )
        for why in dict.fromkeys(self.left_out[: TOLD - len(lines)]):
            lines.append(f"{how}{why.rule}, and left out: {why.why.value} ({', '.join(why.names)})")
        return lines


def said(one: Rival, how: str = "derived by ") -> str:
    """What a report says of a program that is taken."""
    was, now, words = one.before * 1e3, one.after * 1e3, "as one kernel" if one.whole else _words(one.program)
    return f"{how}{one.fact.rule}: {words}: {now:.4g} ms instead of {was:.4g} ms by itself"


def _words(program: Graph) -> str:
    """The operators of a program, and its kernels."""
    parts = []
    for node in program.nodes():
        if not node.constant:
            parts += [node.op.rpartition(".")[2]] if isinstance(node, Call) else ["kernel"] * isinstance(node, Kernel)
    return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node, and what is computed element by element behind it: `end` is what they give."""

    node: Call
    behind: tuple[Node, ...]
    end: Value
    #: the nodes below it in its region, which are among those behind
    inner: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class HotSite:
    """A kind of place: a program, the nodes that give it, and the seconds of one of them. `inner` are the nodes below each in its
    region, where that has several."""

    program: Graph
    nodes: tuple[Call, ...]
    price: float
    inner: Mapping[Call, tuple[Call, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Looking:
    """How far somebody came who looks for programs in one candidate."""

    searched: int = 0
    found: int = 0
    measured: list[Rival] = field(default_factory=list)
    #: the fastest of each kind of place that is fast enough, and of those that are one kernel
    best: dict[Graph, Rival] = field(default_factory=dict)
    wholes: dict[Graph, Rival] = field(default_factory=dict)
    dearer: list[Dearer] = field(default_factory=list)
    places: dict[Graph, list[NodePlace]] = field(default_factory=dict)
    owned: set[Node] = field(default_factory=set)
    around: Neighbours | None = None
    left_out: dict[Graph, LeftOut] = field(default_factory=dict)

    @property
    def chosen(self) -> list[Rival]:
        return [self.best[old] for old in self.places if old in self.best]

    @property
    def alone(self) -> list[Rival]:
        """As far as there are any, those that are one kernel."""
        return [self.wholes[old] for old in self.places if old in self.wholes]

    def taken(self, old: Graph, found: Sequence[Rival], beaten: float, margin: float) -> None:
        """Keeps what was measured, and takes what is faster than the nodes, than what stands there by now (`beaten` seconds), and than
        all others."""
        for one in found:
            self.measured.append(one)
            if one.ratio >= margin and one.after * margin < beaten:
                for best in (self.best, self.wholes) if one.whole else (self.best,):
                    if old not in best or one.after < best[old].after:
                        best[old] = one

    def tale(self, late: bool = False) -> Tale:
        return Tale(
            self.searched, self.found, tuple(self.measured), tuple(self.chosen), late, tuple(self.dearer), tuple(self.alone),
            tuple(self.left_out.values()),
        )  # fmt: skip


@dataclass(slots=True)
class Visit:
    """Programs that are still to be tried in one kind of place, each with the region that it would stand for."""

    waiting: list[tuple[Graph, PricedProgram]]


def at_work(program: Graph) -> tuple[Graph, tuple[bool, ...]]:
    """What of a program runs: over its inputs, and over what is computed of weights when a model is written."""
    running = [node for node in program.nodes() if not node.constant]
    ends = dict.fromkeys(arg for node in running for arg in node.args if arg.constant)
    inputs = [value for value in program.inputs if not value.constant]
    # one number is part of the model, unless it is a hole
    stored = [value for value in ends if isinstance(value.node, Input) or not value.known or value.type.elements > 1]
    graph, leaves = abstracted(program.outputs, [*inputs, *stored])
    return graph, tuple(leaf.constant for leaf in leaves)


def groups(program: Graph) -> list[Graph]:
    """The different programs of its kernels."""
    return list(dict.fromkeys(node.group for node in program.nodes() if isinstance(node, Kernel)))


def distinct(taken: Sequence[list[Rival]]) -> list[list[Rival]]:
    """Those that are not empty, each once."""
    return [one for k, one in enumerate(taken) if one and one not in taken[:k]]
