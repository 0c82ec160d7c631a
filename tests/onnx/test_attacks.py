"""A short, fixed part of `benchmarks/attack_models.py`: chains of operators through every mode without a search."""

from __future__ import annotations

import pytest

from benchmarks.attack_models import attacked, chain, wrong


@pytest.mark.parametrize("mode", ["canonical", "apply", "strict"])
def test_chains_of_operators(mode: str) -> None:
    assert not list(attacked(0, 600, "chain", mode, most=8))


def test_a_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark compares is what it says."""
    import dslc

    attack, real = chain(1), dslc.optimize

    def renamed(model: object, **options: object) -> object:
        found = real(model, **options)  # type: ignore[arg-type]
        found.model.graph.output[0].name = "other"
        return found

    monkeypatch.setattr(dslc, "optimize", renamed)
    assert wrong(attack, "canonical") == "outputs are ['other'] instead of ['Y']"
