"""The laws from which the axioms prover reasons: those of the libraries whose operators a file uses, wherever they stand."""

from __future__ import annotations

from pathlib import Path

from dslc.prove.axioms.prover import AxiomProver
from dslc.prove.laws import load_with_laws
from dslc.semantics.library import load_many

OWN = """dslc 1
import taso.operators (conv, concat)
substitution joined(A: T[M, K, N, P], B: T[M, K, N, P], C: T[F, K, U, V]) -> Y {
  Y = concat(conv(A, C, padding="valid"), conv(B, C, padding="valid"), axis=0)
  =>
  Y = conv(concat(A, B, axis=0), C, padding="valid")
}
"""


def test_laws_in_files_that_nobody_imports_are_known(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    file.write_text(OWN, encoding="utf-8")
    assert not [law for law in load_many([file]).laws.values() if law.name.startswith("taso.") and law.trait is None]
    rules = load_with_laws([file])
    assert {name for name in rules.laws if name.startswith("taso.")} == set(load_many(["taso.properties"]).laws) - set(
        load_many(["std"]).laws
    )
    assert AxiomProver().verdict(rules, rules.substitutions["own.joined"]).answer == "equal"


def test_what_is_asked_for_is_not_loaded_twice() -> None:
    assert set(load_with_laws(["taso"]).laws) >= set(load_many(["taso"]).laws)
