"""What a kernel is estimated to take and to save, and the best choice of kernels that exclude each other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dslc.fuse.fusion as search
from dslc.codegen.host.compiler import BuildReason, NotBuilt
from dslc.codegen.text import KernelText
from dslc.cost.cache import CostCache
from dslc.cost.machine import Machine as Device
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.fuse import autotune
from dslc.fuse.autotune import Autotuner, Dropped, Generated, TunedKernel, WhyUnused
from dslc.fuse.choose import chosen
from dslc.fuse.estimate import EVERYDAY, Speeds, estimate, machine
from dslc.fuse.groups import Neighbours, NodeGroup, proposals
from dslc.fuse.kernels import fold_of
from dslc.fuse.offers import Offer, OfferPrices
from dslc.fuse.profile import Profiles
from dslc.fuse.timings import Subject
from dslc.ir.constants import array_value
from dslc.ir.graph import Call, Graph, Kernel, Value
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules
from tests.search.test_fuse_groups import chained, graph, names, w, x

FAST = Speeds(((1e5, 1e11), (1e8, 5e10)), 2e11, 2)


def kernel(rules: Rules, value: Value) -> Kernel:
    """The largest group below a value, as a kernel."""
    return fold_of(next(proposals(graph(value), rules))).kernel


def seconds(rules: Rules, value: Value, at: Speeds = FAST) -> float:
    return estimate(kernel(rules, value), Profiles(rules)).seconds(at)


# ---- estimates --------------------------------------------------------------------------------------------------


def test_a_chain_moves_its_ends_only(std: Rules) -> None:
    found = estimate(kernel(std, chained(std, x(1000, 1000), "relu neg abs")), Profiles(std))
    assert found.bytes == 8e6
    assert found.rounds == 1


def test_a_broadcast_operand_is_read_once(std: Rules) -> None:
    (shifted,) = apply(std, "std.add", [x(1000, 1000), w(1000)])
    assert estimate(kernel(std, shifted), Profiles(std)).bytes == 8e6 + 4e3


def test_a_slice_reads_what_it_takes(std: Rules) -> None:
    (part,) = apply(std, "std.slice", [x(1000, 1000)], {"start": (0, 0), "size": (10, 1000)})
    assert estimate(kernel(std, chained(std, part, "neg")), Profiles(std)).bytes == 8e4


def test_more_data_and_slower_functions_take_longer(std: Rules) -> None:
    times = [seconds(std, chained(std, x(n), op)) for n, op in ((1 << 18, "neg"), (1 << 20, "neg"), (1 << 20, "mish"))]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2]


def test_one_row_is_reduced_by_one_thread(std: Rules) -> None:
    def mean(*shape: int) -> Value:
        (found,) = apply(std, "std.reduce_mean", [x(*shape)], {"axes": (1,), "keepdims": True})
        return found

    assert seconds(std, mean(1, 1 << 20)) > 1.5 * seconds(std, mean(1 << 10, 1 << 10))


def test_speeds_are_measured_once(std: Rules, tmp_path: object) -> None:
    class Invented(Measurer):
        def measured(self, sample: Sample, turn: str = "") -> Measured:
            return Measured(1e-3)

    with CostCache(str(tmp_path)) as cache:
        found = machine(Invented(Device("", 4, ""), cache))
        assert found.threads == 4
        assert [round(touched / speed, 9) for touched, speed in found.bandwidth] == [1e-3] * 3

        class Nothing(Measurer):
            def measured(self, sample: Sample, turn: str = "") -> Measured:
                return Measured(inf)

        assert machine(Nothing(Device("", 4, ""), cache)) is EVERYDAY


# ---- prices -----------------------------------------------------------------------------------------------------


class Priced(Measurer):
    """Every operator takes a millisecond, and so does what the runtime runs as one."""

    def __init__(self) -> None:
        self.count, self.target = 0, Device("", 1, "")

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        self.count += 1
        return Measured(1e-3)


def prices(rules: Rules, whole: Graph) -> OfferPrices:
    costs = CostModel(rules, Priced(), lambda inputs, outputs: b"", 17)
    return OfferPrices(whole, costs, Profiles(rules), FAST, Neighbours(whole))


def test_what_the_runtime_fuses_with_a_convolution_costs_nothing_more(std: Rules) -> None:
    (conv,) = apply(std, "std.conv", [x(1, 64, 32, 32), w(64, 64, 3, 3)])
    whole = graph(chained(std, conv, "relu"))
    at = prices(std, whole)
    (relu,) = [group for group in proposals(whole, std) if names(group) == "relu"]
    assert at.measured(at.offer(relu)).price == 0.0


def test_a_price_counts_what_runs_by_itself_afterwards(std: Rules) -> None:
    value = chained(std, x(64, 64), "relu neg exp")
    whole = graph(value)
    at = prices(std, whole)
    nodes = Neighbours(whole).nodes
    middle = NodeGroup((nodes[1],), nodes[1].values)
    # one group of three becomes two of one
    assert at.measured(at.offer(middle)).price == pytest.approx(-1e-3)


def test_a_view_costs_next_to_nothing(std: Rules) -> None:
    (flat,) = apply(std, "std.reshape", [chained(std, x(64, 64), "mish")], {"shape": (4096,)})
    whole = graph(flat)
    at = prices(std, whole)
    nodes = Neighbours(whole).nodes
    view, function = (at.offer(NodeGroup((node,), node.values)) for node in (nodes[1], nodes[0]))
    assert view.price < 1e-6 < function.price


def test_time_that_is_up_is_told(std: Rules) -> None:
    class Late(Priced):
        def measured(self, sample: Sample, turn: str = "") -> Measured:
            raise TimeUp

    whole = graph(chained(std, x(64, 64), "relu exp"))
    costs = CostModel(std, Late(), lambda inputs, outputs: b"", 17)
    at = OfferPrices(whole, costs, Profiles(std), FAST, Neighbours(whole))
    with pytest.raises(TimeUp):
        at.measured(at.offer(next(proposals(whole, std))))


# ---- choices ----------------------------------------------------------------------------------------------------


def offers_of(rules: Rules, worths: list[tuple[int, int, int]]) -> tuple[Graph, list[Offer]]:
    """Runs of a chain of ten nodes, each (first, length) worth something."""
    whole = graph(chained(rules, x(8), "exp neg " * 5))
    around = Neighbours(whole)
    out = []
    for first, length, worth in worths:
        group = around.group(around.nodes[first : first + length])
        if group.nodes:
            out.append(Offer(group, fold_of(group), float(worth), 0.0))
    return whole, out


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 50)), min_size=1, max_size=9))
def test_the_choice_is_the_best_one(std: Rules, worths: list[tuple[int, int, int]]) -> None:
    whole, offers = offers_of(std, worths)
    found = chosen(whole, offers, kernels=100)

    def fits(some: tuple[Offer, ...]) -> bool:
        nodes = [node for offer in some for node in offer.group.nodes]
        return len(nodes) == len(set(nodes))

    best = max(
        sum(offer.saving for offer in some)
        for count in range(1, len(offers) + 1)
        for some in combinations(offers, count)
        if fits(some)
    )
    assert fits(tuple(found))
    assert sum(offer.saving for offer in found) == best


def test_what_saves_nothing_is_not_chosen(std: Rules) -> None:
    whole, offers = offers_of(std, [(0, 2, -5), (4, 2, 0)])
    assert chosen(whole, offers, kernels=10) == []


def test_equal_groups_count_as_one_kernel(std: Rules) -> None:
    whole, offers = offers_of(std, [(0, 2, 3), (2, 2, 3), (4, 2, 3), (6, 3, 5)])
    # three places of one kernel are worth more than one place of another
    assert len(chosen(whole, offers, kernels=1)) == 3
    assert len(chosen(whole, offers, kernels=2)) == 4


def test_nodes_of_a_kernel_that_is_left_out_are_free_for_others(std: Rules) -> None:
    whole, offers = offers_of(std, [(0, 2, 30), (2, 2, 30), (4, 3, 50), (4, 2, 20)])
    assert [len(offer.group.nodes) for offer in chosen(whole, offers, kernels=1)] == [2, 2, 2]


def test_groups_that_wait_for_each_other_are_not_chosen_together(std: Rules) -> None:
    a, b = (chained(std, x(4, name=name), "exp") for name in "ab")
    (minus_b,), (minus_a,) = apply(std, "std.neg", [b]), apply(std, "std.neg", [a])
    (left,), (right,) = apply(std, "std.add", [a, minus_b]), apply(std, "std.add", [b, minus_a])
    whole = graph(left, right)
    crossed = [NodeGroup((a.node, minus_b.node), (a, minus_b)), NodeGroup((b.node, minus_a.node), (b, minus_a))]
    offers = [Offer(group, fold_of(group), worth, 0.0) for group, worth in zip(crossed, (2.0, 1.0), strict=True)]
    assert chosen(whole, offers, kernels=10) == offers[:1]


def test_many_offers_of_one_knot_are_chosen_from_in_no_time(std: Rules) -> None:
    whole = graph(chained(std, x(8), "exp neg abs " * 20))
    around = Neighbours(whole)
    random = np.random.default_rng(0)
    offers = []
    for _ in range(300):
        first, length = int(random.integers(0, 58)), int(random.integers(1, 12))
        group = around.group(around.nodes[first : first + length])
        offers.append(Offer(group, fold_of(group), float(random.random()) * length, 0.0))
    found = chosen(whole, offers, kernels=300)
    assert sum(offer.saving for offer in found) > 0.9 * _best_of_runs(around, offers)


def _best_of_runs(around: Neighbours, offers: list[Offer]) -> float:
    """The best choice of runs of a chain, by the last node."""
    best = [0.0] * (len(around.nodes) + 1)
    for end in range(1, len(best)):
        best[end] = best[end - 1]
        for offer in offers:
            ranks = [around.rank[node] for node in offer.group.nodes]
            if max(ranks) + 1 == end:
                best[end] = max(best[end], best[min(ranks)] + offer.saving)
    return best[-1]


def test_a_number_is_no_weight_of_an_estimate(std: Rules) -> None:
    (doubled,) = apply(std, "std.mul", [x(100, 100), array_value(np.float32(2))])
    assert estimate(kernel(std, doubled), Profiles(std)).bytes == 8e4


# ---- what is kept -----------------------------------------------------------------------------------------------


class Counted(Priced):
    """Every node takes a millisecond, kernels next to nothing."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        # an addition and a product that say what the machine can do take next to nothing
        return Measured(1e-3 * sample.text.count(" = std.") or 1e-6)


def kept(
    rules: Rules, whole: Graph, told: dict[str, tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The kernels that are kept where trials say what nodes and kernels take, in milliseconds, by operators."""

    class Invented(Autotuner):
        def tried(self, subjects: Iterable[Subject], brief: bool = False) -> dict[Graph, TunedKernel | Dropped]:
            out: dict[Graph, TunedKernel | Dropped] = {}
            for subject in subjects:
                nodes, seconds = told.get(words(subject.program), (1.0, 2.0))
                text = KernelText("k", (), (), (), "")
                found = TunedKernel(subject.program, words(subject.program), "", text, nodes / 1e3, seconds / 1e3, 1)
                slower = Dropped(subject.program, WhyUnused.SLOWER, "", nodes / 1e3)
                out[subject.program] = found if seconds < nodes else slower
            return out

        def library(self, found: Iterable[TunedKernel], seconds: float = inf) -> None:
            return None

    monkeypatch.setattr(search, "Autotuner", Invented)
    costs = CostModel(rules, Counted(), lambda inputs, outputs: b"", 17)
    return [words(one.tried.program) for one in search.Fusing(whole, rules, costs, 17).run().story.kept]


def test_what_there_was_no_time_for_goes_on_where_it_stopped(std: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time there is time for one program; the second time that one is not tried once more."""
    tried: list[str] = []

    class Hurried(Autotuner):
        def tried(self, subjects: Iterable[Subject], brief: bool = False) -> dict[Graph, TunedKernel | Dropped]:
            out: dict[Graph, TunedKernel | Dropped] = {}
            for subject in subjects:
                name = words(subject.program)
                late = not late_already and name != "exp softmax"
                tried.extend([name] * (not late))
                out[subject.program] = Dropped(subject.program, WhyUnused.LATE if late else WhyUnused.SLOWER, "", 1e-3)
            return out

    late_already = False
    monkeypatch.setattr(search, "Autotuner", Hurried)
    costs = CostModel(std, Counted(), lambda inputs, outputs: b"", 17)
    fusing = search.Fusing(softened(std), std, costs, 17, FOREVER, {}, None, 10, None, False)
    assert fusing.run().story.late and tried == ["exp softmax"]
    late_already = True
    assert not fusing.again(FOREVER).story.late
    assert len(tried) == len(set(tried)) > 1
    # with nothing left to try it says the same once more
    before = list(tried)
    assert not fusing.again(FOREVER).story.late and tried == before


def words(program: Graph) -> str:
    return " ".join(node.op.removeprefix("std.") for node in program.nodes() if isinstance(node, Call))


def softened(rules: Rules) -> Graph:
    """`softmax(exp(x))`: it may be cut before the rows are looked at."""
    (soft,) = apply(rules, "std.softmax", [chained(rules, x(1024, 1024), "exp")], {"axis": 1})
    return graph(soft)


def test_the_fastest_kernel_is_kept(std: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(std, softened(std), {"exp softmax": (2.0, 0.5), "exp": (1.0, 0.4)}, monkeypatch) == ["exp softmax"]


def test_a_part_is_kept_where_the_whole_has_no_fast_kernel(std: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(std, softened(std), {"exp softmax": (2.0, 3.0), "exp": (1.0, 0.4)}, monkeypatch) == ["exp"]


def test_a_part_does_not_break_what_the_runtime_runs_faster_as_a_whole(
    std: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    # together the nodes take no longer than one of them: without the first, the second takes a millisecond
    told = {"exp softmax": (1.0, 3.0), "exp": (1.0, 0.1)}
    assert kept(std, softened(std), told, monkeypatch) == []
    assert kept(std, softened(std), {**told, "exp softmax": (1.0, 0.8)}, monkeypatch) == ["exp softmax"]


# ---- what there is no time to compile ------------------------------------------------------------------------------------


def test_kernels_that_take_too_long_to_compile_do_not_cost_the_others(
    std: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten of one text each: those that are compiled first are measured, whatever becomes of the next ones."""
    built: list[list[str]] = []

    def build(texts: list[KernelText], *_: object, **__: object) -> Any:
        built.append([text.name for text in texts])
        if len(built) == 2:
            raise NotBuilt(BuildReason.TIMEOUT)
        return SimpleNamespace(kernels={text.name: text for text in texts}, failed=(), fresh=False, path="")

    def best(self: Autotuner, subject: Subject, own: list[Generated], library: object) -> TunedKernel:
        return TunedKernel(subject.program, own[0].text.name, None, own[0].text, 2.0, 1.0, 1)

    monkeypatch.setattr(autotune, "build", build)
    monkeypatch.setattr(Autotuner, "_best", best)
    measurer: Any = SimpleNamespace(target=this_machine(1))
    tried = Autotuner(std, measurer, Profiles(std).sizes, 17, until=Deadline.after(40.0))
    subjects = [Subject(graph(chained(std, x(k + 1), "exp")), ()) for k in range(10)]
    out: dict[Graph, TunedKernel | Dropped] = {}
    texts = {one: [Generated(None, KernelText(f"k{k}", (), (), (), ""))] for k, one in enumerate(subjects)}
    found = tried._measured(texts, out)
    assert [name for own in built for name in own] == [f"k{k}" for k in range(10)] and len(built) > 2
    assert [one.name for one in found.values()] == [*built[0], *(name for own in built[2:] for name in own)]
    late = [one for one in out.values() if isinstance(one, Dropped)]
    assert len(late) == len(built[1]) and all(one.why is WhyUnused.LATE for one in late)
    # where it is known what the compiler takes, it is not asked for more than fits, and no kernel loses its first variant for others
    tried._pace = 2.0
    three = {
        one: [Generated(None, KernelText(f"v{k}{n}", (), (), (), "")) for n in range(3)]
        for k, one in enumerate(subjects[:3])
    }
    out.clear()
    assert [len(own) for own in tried._fitting(three, 100.0, out).values()] == [3, 3, 3] and not out
    assert [len(own) for own in tried._fitting(three, 28.0, out).values()] == [2, 2, 2] and not out
    assert list(tried._fitting(three, 9.0, out)) == subjects[:2] and list(out) == [subjects[2].program]
