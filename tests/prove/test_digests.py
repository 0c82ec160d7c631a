"""A verdict is of one meaning: whatever else a name means makes another digest, and what means the same keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dslc.checking.memory import CheckMemory, Recall
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import own_evidence, stamp
from dslc.prove.run.verify import verify
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.library import load_many

ONCE = "dslc 1\nlibrary once 1.0.0\nexport f\noperator f(X: T[*S]) -> Y: T[*S] { Y[*i] = X[*i] }\n"
TWICE = "dslc 1\nlibrary twice 1.0.0\nexport f\noperator f(X: T[*S]) -> Y: T[*S] { Y[*i] = 2 * X[*i] }\n"
#: passes the `f` of another library on, by its name and by an operator of its own
THIRD = (
    "dslc 1\nlibrary third 1.0.0\nimport once (f)\nexport g\noperator g(X: T[*S]) -> Y: T[*S] { Y[*i] = f(X)[*i] }\n"
)
RULE = "substitution doubled(X: f32[*S]) -> Y { Y = add(m.f(X), m.f(X)) => Y = n.f(X) }\n"
HEAD = "dslc 1\nlibrary mine 1.0.0\nimport std (add)\n"
PARTS = HEAD + "import .one (g)\nimport .two (h)\nsubstitution same(X: f32[*S]) -> Y { Y = g(X) => Y = h(X) }\n"


def part(name: str, times: str) -> str:
    """A file with an operator, and a function of which each file has its own."""
    return f"dslc 1\nlet scaled(x) = {times} * x\noperator {name}(X: T[*S]) -> Y: T[*S] {{ Y[*i] = scaled(X[*i]) }}\n"


BASE = {"once/once.rules": ONCE, "twice/twice.rules": TWICE, "third/third.rules": THIRD}
ALIASES = HEAD + "import once as m\nimport twice as n\n" + RULE
NAMED = HEAD + "import once (f)\nsubstitution same(X: f32[*S]) -> Y { Y = f(X) => Y = X }\n"
PASSED_ON = HEAD + "import third as c\nsubstitution same(X: f32[*S]) -> Y { Y = c.f(X) => Y = X }\n"
BELOW = PASSED_ON.replace("c.f(", "c.g(")
LOCAL = "operator f(X: T[*S]) -> Y: T[*S] { Y[*i] = 3 * X[*i] }\n"


def digests(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Of the one rule of the library `mine`: as provers and as an editor's memory know it."""
    for name, text in {**BASE, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("DSLC_PATH", str(folder))
    rules = load_many(["std", folder / "mine"])
    (rule,) = (one for one in rules.substitutions.values() if one.module.library == "mine")
    return rule_digest(rules, rule), Recall(CheckMemory(), rules)._rests_on(rule)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"mine/a.rules": ALIASES}, {"mine/a.rules": ALIASES.replace("once as m", "twice as m").replace("twice as n", "once as n")}),
        ({"mine/a.rules": NAMED}, {"mine/a.rules": NAMED.replace("import once", "import twice")}),
        ({"mine/a.rules": NAMED}, {"mine/a.rules": NAMED.replace("import once (f)\n", "") + LOCAL}),
        ({"mine/a.rules": PASSED_ON}, {"mine/a.rules": PASSED_ON, "third/third.rules": THIRD.replace("import once", "import twice")}),
        ({"mine/a.rules": BELOW}, {"mine/a.rules": BELOW, "third/third.rules": THIRD.replace("import once", "import twice")}),
        ({"mine/a.rules": BELOW}, {"mine/a.rules": BELOW, "third/third.rules": THIRD.replace("import once (f)\n", "") + LOCAL}),
        ({"mine/a.rules": NAMED}, {"mine/a.rules": NAMED, "once/once.rules": ONCE.replace("= X[", "= 5 * X[")}),
        ({"mine/a.rules": NAMED}, {"mine/a.rules": NAMED, "once/once.rules": ONCE + "property f is involution\n"}),
        ({"mine/a.rules": PARTS, "mine/one.rules": part("g", "1"), "mine/two.rules": part("h", "2")},
         {"mine/a.rules": PARTS, "mine/one.rules": part("g", "2"), "mine/two.rules": part("h", "1")}),
        ({"mine/a.rules": PARTS, "mine/one.rules": part("g", "1"), "mine/two.rules": part("h", "1")},
         {"mine/a.rules": PARTS, "mine/one.rules": part("g", "1"), "mine/two.rules": part("h", "2")}),
    ],
    ids=["aliases", "import", "shadowed", "passed on", "of its module", "shadowed there", "edited", "trait", "functions", "one of two"],
)  # fmt: skip
def test_another_meaning_has_another_digest(
    before: Mapping[str, str], after: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = digests(tmp_path / "1", before, monkeypatch), digests(tmp_path / "2", after, monkeypatch)
    assert first[0] != second[0] and first[1] != second[1]


@pytest.mark.parametrize(
    "after",
    [
        {"mine/b.rules": ALIASES},
        {"mine/a.rules": ALIASES + LOCAL.replace("operator f", "operator spare")},
        {"mine/a.rules": HEAD + "import twice as n\nimport third as unused\nimport once as m\n" + RULE},
        {"mine/a.rules": ALIASES.replace("{ Y = add", '{\n  """Says so."""\n  # and why\n  Y = add')},
        {"mine/a.rules": ALIASES, "once/once.rules": ONCE + LOCAL.replace("operator f", "operator spare")},
    ],
    ids=["file", "operator", "imports", "words", "elsewhere"],
)
def test_the_same_meaning_keeps_its_digest(
    after: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digests(tmp_path / "1", {"mine/a.rules": ALIASES}, monkeypatch)
    assert digests(tmp_path / "2", after, monkeypatch)[0] == first[0]


def test_no_verdict_outlives_what_names_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the lock nor this user's own evidence says anything of the rule with its imports exchanged."""
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))
    digests(tmp_path, {"mine/a.rules": ALIASES}, monkeypatch)
    place, statuses = tmp_path / "mine" / "a.rules", []
    for text in (ALIASES, ALIASES.replace("once as m", "twice as m").replace("twice as n", "once as n"), ALIASES):
        place.write_text(text)
        rules = load_many(["std", place])
        statuses += [one.status for one in verify(rules, ["mine.doubled"], 0, "beside", trust=True)]
    assert statuses == ["proved", "refuted", "proved"]


def test_evidence_is_of_provers_and_of_what_they_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    own_evidence().put([RuleVerdict("a.b", "proved", (), "1")])
    assert own_evidence().get("a.b", "1") is not None
    monkeypatch.setattr("dslc.prove.evidence.lock.version", lambda package: f"another {package}")
    stamp.cache_clear()
    try:
        assert own_evidence().get("a.b", "1") is None
    finally:
        stamp.cache_clear()
