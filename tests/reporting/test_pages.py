"""Pages are whole without network, show what a report says, and read nothing of a model as HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.main import run
from dslc.report import Asked, Counts, Details, Generator, PairMs, PhaseSpan, Report, Sizes, Step, Turn, read
from dslc.reporting.data import DrawnNode, KernelCode, Picture, Timed
from dslc.reporting.pages import page_of_bench, page_of_difference, page_of_programs, page_of_run, timeline_of
from dslc.reporting.plots import plane, svg
from tests.browser import Browser, browser, chromium

HOSTILE = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"


def picture(count: int, hostile: str = "", rule: str = "std.a") -> Picture:
    """Blocks of four nodes with a shortcut around each."""
    nodes = []
    for k in range(count):
        reads = [f"v{k - 1}" if k else "x", *([f"v{k - 4}"] if k % 4 == 3 and k > 4 else [])]
        changed = k % 10 == 3
        nodes.append(DrawnNode(
            f"/layer{k // 20}/block{k // 4}/{hostile}{k}", ("Conv", "Relu", "MatMul", "Add")[k % 4], tuple(reads), (f"v{k}",),
            (rule,) if changed else (), 0.1 * (k % 7), {"pads": f"[1, 1]{hostile}"}, changed,
        ))  # fmt: skip
    timed = tuple(Timed(node.name, node.operator, node.milliseconds or 0.0) for node in nodes)
    return Picture(("x",), (f"v{count - 1}",), tuple(nodes), timed)


def report(count: int = 24, hostile: str = "", name: str = "std.a") -> Report:
    pairs = tuple(PairMs(2.0 + k % 3 / 10, 1.0 + k % 5 / 20, k // 8, k % 2 == 0) for k in range(24))
    details = Details(
        picture(count, hostile, name),
        picture(count - 4, hostile, name),
        (KernelCode(f"k_1{hostile}", (f"n{hostile}",), f"int f(); // {hostile}"),),
        "native",
        {"dslc": "0.1.0"},
        f"dslc optimize {hostile}",
        {"searching rules": 4.0, "timing": 10.0},
    )
    return Report(
        f"net{hostile}.onnx", f"here{hostile}", 9.5, 2.1, 1.1, 1.9, 1.8, 2.0, 2.1, 1e-6, False, f"because{hostile}",
        (Step(name, 3, 0.5, "proved", "exact", (f"n{hostile}",), f"substitution a {{ {hostile} }}"),),
        sizes=(Sizes({f"N{hostile}": 8}, 2.1, 1.1, 1.9, 1.8, 2.0, pairs),), notes=(f"a note{hostile}",), budget=10.0,
        phases={"searching": 4.0, f"timing{hostile}": 5.5}, cut=("searching",), moments={"first gain decided": 3.0},
        story=(Turn(name, 3, 1.2, 0.5, None), Turn("kernels", 1, 1.0, 0.2, 1.1)),
        timeline=(PhaseSpan("searching", 0.0, 4.0), PhaseSpan(f"timing{hostile}", 4.0, 9.5)),
        generators=(Generator(f"fusions{hostile}", 3, 2, 1, 1, 2.5),), details=details,
    )  # fmt: skip


def derived(hostile: str = "", call_ms: float | None = None) -> dict[str, Any]:
    """Programs that take half of what the call itself takes, as much, and twice as much."""
    program = {
        "target": "conv",
        "steps": [f"einnet.{hostile}"],
        "proved": True,
        "program": f"operator {hostile}",
        "bytes": 4096,
    }
    return {
        "programs": [{**program, "cost_ms": cost, "measured_ms": None} for cost in (0.5, 1.0, 2.0)], "call_ms": call_ms,
        "call_cost_ms": 1.0, "states": 1, "applications": 2, "seconds": 1.5, "complete": False, "missed": {f"matmul{hostile}": "`x`"},
        "notes": [f"a note{hostile}"],
    }  # fmt: skip


def pages(folder: Path) -> dict[str, Path]:
    bench = {
        "models": [{"model": f"a{HOSTILE}.onnx", "typical_ms": 2.0, "minimum_ms": 1.9, "blocks": 9},
                   {"model": "b.onnx", "typical_ms": 1.0, "minimum_ms": 0.9, "blocks": 9}],
        "verdict": HOSTILE, "ratio": 2.0, "low": None, "high": None, "machine": "here", "notes": [HOSTILE],
    }  # fmt: skip
    pairs = [{"before_ms": 2.0, "after_ms": 1.0 + k / 40, "generation": 0, "base_first": k % 2 == 0} for k in range(9)]
    differing = {
        "name": f"Y{HOSTILE}",
        "share": 0.25,
        "boxes": ["[0:2, 1]"],
        "proved": True,
        "agree": True,
        "seconds": 0.1,
    }
    found = {
        "run": report(hostile=HOSTILE).to_html(), "large": report(1000).to_html(), "kept": Report("m.onnx", "here", 1.0).to_html(),
        "bench": page_of_bench(bench, pairs),
        "diff": page_of_difference([HOSTILE], [differing], [svg([plane([[True, False]] * 2)]), '<svg width="2000" height="40"></svg>']),
        "derive": page_of_programs(f"conv({HOSTILE})", derived(HOSTILE), [asdict(picture(3, HOSTILE))] * 3),
    }  # fmt: skip
    for name, text in found.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in found}


class Elements(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_of_a_model_are_never_html(tmp_path: Path) -> None:
    for name, path in pages(tmp_path).items():
        elements = Elements(path.read_text("utf-8")).found
        scripts = [about for tag, about in elements if tag == "script"]
        assert all(about.get("type") in {None, "application/json"} for about in scripts), name
        assert sum("type" not in about for about in scripts) == 1, name
        assert not any(tag in {"img", "iframe", "object", "base"} for tag, _ in elements), name
        assert not any(key.startswith("on") for _, about in elements for key in about), name
        links = {about.get(key) for _, about in elements for key in ("src", "href") if about.get(key)}
        assert all(str(link).startswith(("#", "data:")) for link in links), name
        assert "&lt;/script&gt;" in path.read_text("utf-8") or name in {"large", "kept"}


def test_the_data_of_a_page_is_what_the_report_says() -> None:
    text = report(24, HOSTILE).to_html()
    data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text, re.S)[0])
    assert len(data["before"]) == 24 and data["before"][3]["name"].endswith(f"{HOSTILE}3")
    assert text.count('class="dot') >= 24 + 48
    assert "default-src 'none'" in text


def test_a_report_is_read_back_and_made_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "r.json", tmp_path / "r.html"
    path.write_text(report().to_json())
    assert read(path.read_text()) == report()
    assert run(["report", str(path), "-o", str(out)]) == 0
    assert out.read_text("utf-8") == report().to_html()
    # what an older version wrote has no details
    older = json.loads(report().to_json())
    for key in ("details", "timeline", "generators"):
        del older[key]
    path.write_text(json.dumps(older))
    assert run(["report", str(path), "-o", str(out)]) == 0


@pytest.mark.parametrize("text", [
    "{}", "[]", "no JSON", '{"story": 3, "model": "m", "target": "t", "seconds": 1}',
    '{"story": [], "model": 3, "target": "t", "seconds": 1}', '{"story": [], "model": "m", "target": "t", "seconds": "1"}',
    "[" * 100_000, '{"story": [], "model": "m", "target": "t", "seconds": 1' + "0" * 400 + "}",
])  # fmt: skip
def test_what_is_no_report_is_said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    assert run(["report", str(path), "-o", str(tmp_path / "r.html")]) == 1
    assert "E0914" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_strange_numbers_and_texts_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(report().to_json())
    data["sizes"][0]["pairs"] += [{"before_ms": float("nan"), "after_ms": -1, "generation": 0, "base_first": True}]
    data["timeline"] += [{"phase": "\ud800", "begin": float("nan"), "end": 1e300}, {"phase": "x", "begin": 3, "end": 1}]
    data["seconds"], data["before_ms"], data["details"]["plan"] = -1, 0, {"x": float("inf")}
    data["details"]["before"]["nodes"][0]["inputs"] = ["v23", "v0"]
    (tmp_path / "r.json").write_text(json.dumps(data))
    assert run(["report", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.html")]) == 0


def test_infinities_are_read_back_and_shown() -> None:
    endless = replace(report(), sizes=(Sizes({}, 1.0, 1.0, 1.1, 0.0, float("inf")),), ratio_high=None)
    assert read(endless.to_json()).sizes[0].high == float("inf")
    assert "No pairs were kept" in read(endless.to_json()).to_html()


def test_a_notebook_shows_the_outcome_without_scripts() -> None:
    found = Elements(report(hostile=HOSTILE)._repr_html_()).found
    assert {"table", "svg", "style"} <= {tag for tag, _ in found}
    assert not {"script", "img"} & {tag for tag, _ in found}


# ---- what is said ----------------------------------------------------------------------------------------------------------


def texts(page: str) -> str:
    """The text of a page without elements and scripts, with single spaces."""
    return re.sub(
        r"\s+", " ", unescape(re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL))
    )


def test_the_verdict_is_the_headline_and_what_it_depends_on_stands_below() -> None:
    found = page_of_run(report().to_dict(), ("net.onnx: faster, by `std.a`", "here; at N=8"))
    assert "<h1>Faster, by <code>std.a</code></h1>" in found
    assert '<p class="soft under">here; at N=8</p>' in found
    # a card has the times
    assert "<h1>2x faster</h1>" in page_of_run(report().to_dict(), ("net.onnx: 2 ms -> 1 ms, 2x faster",))
    # no name is written with a capital that it does not have
    assert "<h1>other.onnx is kept</h1>" in page_of_run(report().to_dict(), ("other.onnx is kept",))


def test_cards_say_what_a_run_gave() -> None:
    faster = replace(report(), before=Counts(24, 0, 0), after=Counts(20, 0, 0))
    kept = replace(faster, kept_original=True, after=faster.before, ratio=1.0, max_rel_error=0.0)
    untimed = replace(faster, ratio=None, before_ms=None, after_ms=None, sizes=())
    said = {
        one: re.findall(r'<div class="figure"><b[^>]*>(.*?)</b><span>(.*?)</span>', two.to_html())
        for one, two in {"faster": faster, "kept": kept, "untimed": untimed}.items()
    }
    assert said["faster"] == [
        ("1.9×", "times as fast, 95 % interval 1.80 to 2.00"), ("2.1 → 1.1", "milliseconds, before → after"), ("24 → 20", "operators"),
        ("1e-06", "largest relative error of an output"),
    ]  # fmt: skip
    assert said["kept"] == [
        ("Kept", "the original is written"), ("2.1 ms", "per run"),
        ("1.9×", "times as fast: the best candidate, 95 % interval 1.80 to 2.00"), ("24", "operators, unchanged"),
    ]  # fmt: skip
    assert [value for value, _ in said["untimed"]] == ["Rewritten", "0 B", "24 → 20", "1e-06"]


@pytest.mark.parametrize(("low", "said"), [(9.9396, "9.93"), (1.0199, "1.01"), (0.98896, "0.989")])
def test_a_lower_end_that_is_a_claim_is_never_rounded_up(low: float, said: str) -> None:
    assert f"interval {said} to 23.38" in replace(report(), ratio_low=low, ratio_high=23.371).to_html()


def test_notes_are_folded_and_counted_with_their_code() -> None:
    found = replace(report(), notes=("use `--bind N=8`", "one ` alone")).to_html()
    assert '<details class="notes"><summary>2 notes</summary>' in found
    assert "<li>use <code>--bind N=8</code></li><li>one ` alone</li>" in found
    assert (
        "<summary>1 note</summary>" in report().to_html()
        and 'class="notes"' not in replace(report(), notes=()).to_html()
    )


def test_only_what_there_is_has_a_section_and_a_link() -> None:
    for one in (report(), Report("m.onnx", "here", 1.0), replace(report(), kept_original=True, steps=(), story=())):
        elements = Elements(one.to_html()).found
        links = [str(about["href"])[1:] for tag, about in elements if tag == "a"]
        assert links == [about["id"] for tag, about in elements if tag == "section"]
    assert "no generated kernels" not in Report("m.onnx", "here", 1.0).to_html()


def test_headings_of_the_budget_are_plain_and_folded() -> None:
    asked = (Asked("kernels", "the original", promise=1.16, turns=1),)
    found = replace(report(), asked=asked).to_html()
    folded = found[found.index('<section id="budget"') : found.index('<section id="machine"')]
    assert folded.startswith('<section id="budget" class="folded"><details><summary>')
    said = texts(folded)
    for one in (
        "Schedule and actual times",
        "Time per generator",
        "A generator is one way to find",
        "upper bound",
        "100.0 %",
    ):
        assert one in said
    assert "116" not in said


def test_phases_have_colours_of_their_own() -> None:
    names = [f"phase {k}" for k in range(13)]
    spans = tuple(PhaseSpan(name, k, k + 1) for k, name in enumerate(names))
    found = timeline_of(replace(report(), phases=dict.fromkeys(names, 1.0), timeline=spans).to_dict())
    assert len(set(found["phase_hues"].values())) == 13


def test_a_node_has_the_colour_of_its_first_rule() -> None:
    nodes = tuple(
        DrawnNode(name, "Relu", rules=rules, changed=True)
        for name, rules in {"one": ("b.two", "a.one"), "other": ("a.one", "b.two"), "third": ()}.items()
    )
    steps = tuple(Step(name, 1, 0.1, "proved") for name in ("a.one", "b.two"))
    details = Details(Picture(nodes=nodes), Picture(nodes=nodes[:1]))
    found = replace(report(), steps=steps, details=details).to_html()
    colours = dict(re.findall(r'data-rule="(.*?)".*?background: (.*?)"', found))
    drawn = re.findall(r'class="row changed( plain)?" data-side="before".*?(?:--hue: (.*?)")?><title>', found)
    assert drawn == [("", colours["b.two"]), ("", colours["a.one"]), (" plain", "")]
    assert "before, 3 nodes" in found and "after, 1 node<" in found


def test_a_page_of_programs_compares_them_with_the_call() -> None:
    estimated, measured = (
        page_of_programs("conv(X)", derived(call_ms=ms), [asdict(picture(2))] * 3) for ms in (None, 0.5)
    )
    assert (
        "<h1>3 programs for this call; the fastest is 2 times as fast as the call itself, estimated</h1>" in estimated
    )
    assert re.search(
        r"the call itself 1 ms 1\. conv 0\.5 ms, 2× 2\. conv 1 ms, 1× 3\. conv 2 ms, 0\.5×", texts(estimated)
    )
    assert "3 programs for this call" in measured and texts(measured).count("not measured") == 6
    # nothing changed there
    assert "next change" not in estimated


def test_a_page_of_a_benchmark_begins_with_its_verdict() -> None:
    models = [{"model": name, "typical_ms": 2.0, "minimum_ms": 1.0, "blocks": 9} for name in ("a.onnx", "b.onnx")]
    pairs = [{"before_ms": 2.0, "after_ms": 1.5 + k / 8, "generation": 0, "base_first": True} for k in range(9)]
    facts = {
        "models": models,
        "verdict": "the budget ended",
        "ratio": 1.0,
        "low": 0.9,
        "high": 1.1,
        "machine": "m",
        "notes": [],
    }
    found = page_of_bench(facts, pairs)
    assert (
        "<h1>The budget ended</h1>" in found and '<b class="open">1.000×' in found and 'class="two undecided"' in found
    )
    assert '<b class="good">' in page_of_bench({**facts, "low": 1.05}, pairs)
    assert (
        '"></i>A</span>' in found
        and '"></i>B</span>' in found
        and "pair 1, A: 2 ms" in found
        and "before" not in texts(found)
    )


def test_a_page_of_a_difference_begins_with_it() -> None:
    one = {"name": "Y", "share": 0.25, "boxes": ["[0]"], "proved": True, "seconds": 0.1}
    for records, said in (
        ([one], "25 % of Y differs"), ([{**one, "share": 1}], "Y differs everywhere"), ([{**one, "share": None}], "Y differs at some"),
        ([{**one, "share": 0}], "The two programs are equal, proved for all inputs"),
        ([{**one, "share": 0, "proved": False}], "The two programs are equal<"),
        ([one, one], "The two programs differ in 2 of 2 outputs"),
    ):  # fmt: skip
        assert f"<h1>{said}" in page_of_difference(["a", "b"], records, [])


# ---- in a browser ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("there is no chromium on this machine")
    with browser() as found:
        yield found


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_and_raise_nothing(window: Browser, width: int, dark: bool, tmp_path: Path) -> None:
    for name, path in pages(tmp_path).items():
        window.show(path, width, dark)
        assert window.errors == [], name
        assert window.overflowing() == [], name
        assert window.run("document.title") != "owned", name
        ground = window.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is dark, name


def test_a_thousand_nodes_are_searched_moved_and_told_of(window: Browser, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(report(1000).to_html(), "utf-8")
    window.show(path)
    before = window.run("document.querySelector('.pane g.all').getAttribute('transform')")
    assert window.run("""(() => {
      const search = document.querySelector("input[type=search]");
      search.value = "block100/"; search.dispatchEvent(new Event("input"));
      search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
      return document.querySelector(".count").textContent; })()""").startswith("8 found")
    assert window.run("document.querySelector('.pane g.all').getAttribute('transform')") != before
    assert "block100/400" in window.run("document.querySelector('.about').textContent")
    # its twin on the other side
    assert window.run("document.querySelectorAll('[data-side=after] .other').length") == 1
    window.run("document.querySelector('[data-do=in]').click(); document.querySelector('[data-do=fit]').click()")
    window.run("document.querySelector('[data-rule]').click()")
    assert "nodes in both" in window.run("document.querySelector('.count').textContent")
    assert window.run("[...document.querySelectorAll('.row.chosen')].length") == 1
    assert window.errors == []


#: left sides, tops and widths of elements in pixels
BOXES = """[...document.querySelectorAll(%r)].map((one) => one.getBoundingClientRect())
  .map((at) => [at.left, at.top, at.width].map(Math.round))"""


@pytest.mark.parametrize(("width", "across"), [(1280, 4), (400, 2)])
def test_cards_are_equally_wide(window: Browser, width: int, across: int, tmp_path: Path) -> None:
    for name in ("run", "kept", "bench"):
        window.show(pages(tmp_path)[name], width)
        found = window.run(BOXES % ".figure")
        assert len(found) == 4 and len({wide for _, _, wide in found}) == 1, name
        assert len({left for left, _, _ in found}) == across and len({top for _, top, _ in found}) == 4 // across, name


def test_a_small_graph_is_drawn_large_in_a_low_frame(window: Browser, tmp_path: Path) -> None:
    path = tmp_path / "small.html"
    path.write_text(replace(report(), details=Details(picture(1), picture(1))).to_html(), "utf-8")
    window.show(path)
    scale = window.run("+/scale\\((.*)\\)/.exec(document.querySelector('.pane g.all').getAttribute('transform'))[1]")
    heights = window.run("[...document.querySelectorAll('.pane')].map((one) => one.clientHeight)")
    assert scale == 1.5 and len(set(heights)) == 1 and heights[0] < 250
    window.show(pages(tmp_path)["large"])
    assert window.run("document.querySelector('.pane').clientHeight") > 600


def test_names_of_rules_break_at_their_parts_and_numbers_say_what_they_are(window: Browser, tmp_path: Path) -> None:
    name = "a_library.with_a_rule_that_fuses_what_there_is_to_fuse"
    path = tmp_path / "long.html"
    path.write_text(report(name=name).to_html(), "utf-8")
    window.show(path, 400)
    assert window.overflowing() == []
    assert window.run("document.querySelector('#path td.name').clientHeight") < 60
    said = """getComputedStyle(document.querySelector("#path td[data-of='total, ms']"), "::before").content"""
    assert "total, ms" in window.run(said)
    window.show(pages(tmp_path)["diff"], 400)
    at = window.run(BOXES % "td[data-of=seconds]")[0]
    assert at[2] > 50 and at[0] + at[2] <= 400


def test_a_link_opens_what_is_folded_and_its_graph_fits(window: Browser, tmp_path: Path) -> None:
    window.show(pages(tmp_path)["run"])
    assert not window.run("document.querySelector('#budget details').open")
    window.run("document.querySelector('nav a[href=\"#budget\"]').click()")
    assert window.run("document.querySelector('#budget details').open")
    window.show(pages(tmp_path)["derive"])
    assert window.run("[...document.querySelectorAll('section > details')].map((one) => one.open)") == [
        True,
        False,
        False,
    ]
    window.run("document.querySelector('a[href=\"#program2\"]').click()")
    window.run("new Promise((done) => setTimeout(done, 100))")
    assert window.run("document.querySelector('#program2 .pane').clientHeight") > 100
    assert window.errors == []


def test_bars_are_long_on_a_telephone_and_drawings_dark_at_night(window: Browser, tmp_path: Path) -> None:
    window.show(pages(tmp_path)["derive"], 400)
    assert [wide for _, _, wide in window.run(BOXES % ".programs i")] == pytest.approx([92, 46, 92, 182], abs=12)
    window.show(pages(tmp_path)["diff"], 400, True)
    for one, most in ((".svg .equal", 200), (".svg text", 900)):
        colour = window.run(f"getComputedStyle(document.querySelector('{one}')).fill")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 300) is (most == 200), one
