"""Pages are whole without network, show what a report says, and read nothing of a model as HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dslc.cli.main import run
from dslc.report import Details, Generator, PairMs, PhaseSpan, Report, Sizes, Step, Turn, read
from dslc.reporting.data import DrawnNode, KernelCode, Picture, Timed
from dslc.reporting.pages import page_of_bench, page_of_difference
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
        "diff": page_of_difference([HOSTILE], [differing], ['<svg width="2000" height="40"></svg>']),
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
    assert "places in both" in window.run("document.querySelector('.count').textContent")
    assert window.run("[...document.querySelectorAll('.row.chosen')].length") == 1
    assert window.errors == []
