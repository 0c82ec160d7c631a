"""Numbers of a run's stages that are no options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunTuning:
    """Times and sizes that decide what a run looks at; `benchmarks/budget.py` and `benchmarks/large_model.py` show them.

    Attributes:
        culprits: rules that may be blamed before nothing of `--apply` is applied.
        exported: bytes of weights that are written, sent and loaded in a second, or more.
        again: share of the budget that measuring prices again may take, which only the report rests on.
        alone: seconds at most that the time of a whole run of the original is taken for.
        grace: seconds after Ctrl-C for checking the best so far.
        validation: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules.
        meant: operations up to which the original is computed by its operators' equations, where a comparison fails.
        heavy: bytes of weights above which each contender's copy counts.
        elsewhere: share of the budget that the original may take for a run at other sizes to be worth it.
        early: share of the budget that a run leaves before its report says why.
    """

    culprits: int = 5
    exported: float = 1.5e8
    again: float = 0.05
    alone: float = 0.5
    grace: float = 5.0
    validation: float = 30.0
    meant: float = 1e7
    heavy: int = 1 << 28
    elsewhere: float = 0.005
    early: float = 0.15


TUNING = RunTuning()

__all__ = ["TUNING", "RunTuning"]
