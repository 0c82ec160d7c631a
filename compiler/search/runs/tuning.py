"""Numbers of a run's stages that are no options."""

from __future__ import annotations

CULPRITS = 5  #: rules that may be blamed before nothing of `--apply` is applied
EXPORTED = 1.5e8  #: bytes of weights that are written, sent and loaded in a second, or more
AGAIN = 0.05  #: share of the budget that measuring prices again may take, which only the report rests on
ALONE = 0.5  #: seconds at most that the time of a whole run of the original is taken for
GRACE = 5.0  #: seconds after Ctrl-C for checking the best so far
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0
MEANT = 1e7  #: operations up to which the original is computed by its operators' equations, where a comparison fails
HEAVY = 1 << 28  #: bytes of weights above which each contender's copy counts
ELSEWHERE = 0.005  #: share of the budget that the original may take for a run at other sizes to be worth it
EARLY = 0.15  #: share of the budget that a run leaves before its report says why
