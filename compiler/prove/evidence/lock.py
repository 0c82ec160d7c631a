"""`dslc.lock`: what is known of a library's rules, kept beside it; and the same for single rules in the cache folder.

A lock is JSON with one line for each rule, sorted by name, so that two versions of it can be compared and merged as text. What
it says of a rule counts as long as the rule's digest is the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import site
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib import resources
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import dslc
from dslc.folders import cache_folder
from dslc.prove.evidence.digest import PROVER_VERSION, rule_digest
from dslc.prove.verdict import (
    ANSWERS,
    PROVERS,
    STATUSES,
    Counterexample,
    RuleVerdict,
    TypeStatus,
    Verdict,
    types_from,
)
from dslc.records import record
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.installed import BUILTIN
from dslc.semantics.library import load_many
from dslc.store import Store, replace_file

LOCK = "dslc.lock"
_FORMAT = 2  #: version of the format


LARGEST = 64 << 20  #: bytes of a lock that is read

_STOPPED = re.compile(r"stopped after ([0-9.e+-]+) s")


@record
class Lock:
    """The verdicts of one file by rule; `problem` says why a file that is there counts for nothing."""

    verdicts: Mapping[str, RuleVerdict]
    problem: str = ""

    def of(self, rule: str, digest: str, limit: float = 0.0) -> RuleVerdict | None:
        """The verdict on a rule as it is now; nothing where a prover was stopped earlier than after `limit` seconds."""
        found = self.verdicts.get(rule)
        if not found or found.digest != digest:
            return None
        decided = found.status in {"proved", "refuted"}
        return found if decided or not any(_stopped(one) < limit for one in found.verdicts) else None


EMPTY = Lock({})


def stopped(limit: float) -> str:
    """The reason of a prover that took too long."""
    return f"stopped after {limit:g} s"


def _stopped(verdict: Verdict) -> float:
    """After how many seconds a prover was stopped; infinity where it was not."""
    found = _STOPPED.fullmatch(verdict.reason)
    return float(found[1]) if found else inf


def lock_path(definition: SubstitutionDef | PropertyDef) -> Path:
    """The file in which the verdict of a rule is kept: beside the file that defines it."""
    return definition.module.place.parent / LOCK


def read_lock(path: Path) -> Lock:
    """The lock of a folder: empty where there is none, and with its `problem` where it cannot be used."""
    try:
        if path.stat().st_size > LARGEST:
            return Lock({}, f"{path} is too large to be a lock")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return EMPTY
    except (OSError, UnicodeDecodeError) as problem:
        return Lock({}, f"{path} cannot be read: {problem}")
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT or data["prover"] != PROVER_VERSION:
            return Lock({}, f"{path} was written by another version of the provers")
        # what follows from laws was said by a prover that is no more
        kept = {name: entry for name, entry in data["rules"].items() if not entry.get("rests")}
        return Lock({name: from_dict(name, entry) for name, entry in kept.items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Lock({}, f"{path} is damaged")


def write_lock(path: Path, verdicts: Mapping[str, RuleVerdict]) -> str:
    """Writes a lock that is complete or as it was; gives a note where that is not possible, or where a useless one was set aside."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(to_dict(verdicts[name]), sort_keys=True)}" for name in sorted(verdicts)
    ]
    head = f'{{"format": {_FORMAT}, "prover": {PROVER_VERSION}, "rules": {{\n'
    text = head + ",\n".join(lines) + ("\n" if lines else "") + "}}\n"
    note = ""
    if read_lock(path).problem:
        aside = path.with_name(f"{path.name}.old")
        with contextlib.suppress(OSError):
            os.replace(path, aside)
            note = f"{path.name} could not be used and was set aside as {aside}"
    try:
        if not path.exists() or path.read_text("utf-8") != text:
            replace_file(path, text.encode())
    except OSError as problem:
        return f"{path} cannot be written: {problem.strerror}"
    return note


def to_dict(verdict: RuleVerdict) -> dict[str, Any]:
    """Plain values; without times, so that proving again changes nothing."""
    types = [
        {"kinds": {name: str(kind) for name, kind in types.kinds}} | _there(status=one.status, reason=one.reason)
        for types, one in verdict.by_type.items()
    ]
    return _there(reason=verdict.reason, types=types) | {
        "digest": verdict.digest, "status": verdict.status, "verdicts": list(map(_verdict_to_dict, verdict.verdicts)),
    }  # fmt: skip


def _verdict_to_dict(one: Verdict) -> dict[str, Any]:
    found = one.counterexample
    shown = found and {k: v for k, v in asdict(found).items() if v or k in {"drawn", "position"}}
    return _there(
        prover=one.prover, answer=one.answer, reason=one.reason, scope=one.scope, error_bound=one.error_bound,
        needs=list(one.needs), presumes=list(one.presumes), counterexample=shown,
    )  # fmt: skip


def _there(**values: Any) -> dict[str, Any]:
    """The values that say something."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def from_dict(name: str, entry: Mapping[str, Any]) -> RuleVerdict:
    """The inverse; raises KeyError, TypeError or ValueError for what is no verdict."""
    by_type = {
        types_from(each["kinds"].items()): TypeStatus(each["status"], str(each.get("reason", "")))
        for each in entry.get("types", ())
    }
    for status in (entry["status"], *(one.status for one in by_type.values())):
        if status not in STATUSES:
            raise ValueError(status)
    verdicts = []
    for one in entry["verdicts"]:
        if one["prover"] == "axioms":
            continue  # a second opinion, which is not asked for any more
        if one["prover"] not in PROVERS or one["answer"] not in ANSWERS:
            raise ValueError(one["prover"])
        found = one.get("counterexample")
        example = None
        if found is not None:
            texts = {key: str(found.get(key, "")) for key in ("output", "left", "right", "monomial", "trace")}
            drawn = {str(key): str(value) for key, value in found["drawn"].items()}
            example = Counterexample(drawn=drawn, position=tuple(int(k) for k in found["position"]), **texts)
        bound = one.get("error_bound")
        needs, presumes = (tuple(map(str, one.get(key, ()))) for key in ("needs", "presumes"))
        verdicts.append(
            Verdict(
                one["prover"], one["answer"], reason=str(one.get("reason", "")), scope=str(one.get("scope", "")),
                counterexample=example, error_bound=None if bound is None else float(bound),
                needs=needs, presumes=presumes,
            )
        )  # fmt: skip
    digest, reason = str(entry["digest"]), str(entry.get("reason", ""))
    return RuleVerdict(name, entry["status"], tuple(verdicts), digest, reason, by_type)


class ProofCache:
    """Verdicts by digest in a cache folder: for rules whose library has no lock that says anything of them.

    Args:
        stamp: of the provers; the verdicts of other ones are not found.
    """

    def __init__(self, folder: Path, stamp: str = "") -> None:
        self._store, self._stamp = Store(folder / "proofs"), stamp

    def get(self, rule: str, digest: str) -> RuleVerdict | None:
        try:
            found = from_dict(rule, self._store.get_json(f"{self._stamp}{digest}.json"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return found if found.digest == digest else None

    def put(self, verdicts: Iterable[RuleVerdict]) -> None:
        """Keeps verdicts; a folder that cannot be written keeps nothing."""
        for verdict in verdicts:
            self._store.put_json(f"{self._stamp}{verdict.digest}.json", to_dict(verdict))


# what provers consist of, and what they ask; evidence of others is no evidence of these
_PROVERS = (
    "analysis", "deadline.py", "derivation", "errors.py", "grammar", "inspection", "interpret", "ir", "processes", "prove", "semantics",
    "store.py", "syntax",
)  # fmt: skip
_ASKED = ("highspy", "islpy", "lark", "ml_dtypes", "numpy", "sympy", "z3-solver")


def own_evidence(folder: Path | None = None) -> ProofCache:
    """The verdicts, by digest, that these provers gave in this user's runs, or that are kept in a folder."""
    return ProofCache(folder or cache_folder() / "evidence", f"{stamp()}-")


def keep_verdicts(path: Path, verdicts: Mapping[str, RuleVerdict]) -> str:
    """Puts verdicts of a library that was just written, by the rules' names, into the lock beside it; a note where that cannot be.

    What the lock said of the library's rules before is gone.
    """
    place = path.resolve()
    rules, beside = load_many([path]), place.parent / LOCK
    own = [sub for sub in rules.substitutions.values() if sub.module.place == place]
    new = {
        sub.name: replace(verdicts[sub.short], rule=sub.name, digest=rule_digest(rules, sub))
        for sub in own
        if sub.short in verdicts
    }
    if not new and not beside.exists():
        return ""
    libraries = {module.library for module in rules.modules if module.place == place}
    others = {name: one for name, one in read_lock(beside).verdicts.items() if name.rpartition(".")[0] not in libraries}
    return write_lock(beside, {**others, **new})


@functools.cache
def stamp() -> str:
    """Of the provers' files and the versions of what they ask: after a change in one of them everything is proved again."""
    root = Path(dslc.__file__).parent
    total = hashlib.sha256(" ".join((platform.python_version(), *map(version, _ASKED))).encode())
    for stage in _PROVERS:
        for path in sorted([root / stage, *(root / stage).rglob("*")]):
            if path.suffix in {".py", ".lark"}:
                total.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


@functools.cache
def shipped(path: Path) -> bool:
    """Return whether a lock is a part of dslc, as its provers are."""
    return path.resolve().parent in {Path(str(resources.files(package))).resolve() for package in BUILTIN.values()}


def installed(path: Path) -> bool:
    """Return whether a file belongs to an installed package: what it says is the package's word, and nothing is written there."""
    paths = map(sysconfig.get_path, ("purelib", "platlib"))
    folders = [*paths, *site.getsitepackages(), site.getusersitepackages()]
    found = path.resolve()
    return any(found.is_relative_to(Path(folder).resolve()) for folder in folders if folder) or bool(
        {"site-packages", "dist-packages"} & set(found.parts)
    )
