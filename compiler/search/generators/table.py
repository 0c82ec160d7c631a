"""The generators of a run. Adding one is a file with a frozen dataclass, and a line here."""

from __future__ import annotations

from dslc.search.generators.derived import Branched, Derived, Mutated, Paired
from dslc.search.generators.gathered import Gathered
from dslc.search.generators.kernels import Kernels
from dslc.search.generators.nearby import Nearby
from dslc.search.generators.plain import Plain
from dslc.search.generators.protocol import Generator, Prior
from dslc.search.generators.rules import Rules

#: whoever proposes candidates; where two promise as much the first one is asked
GENERATORS: tuple[Generator, ...] = (
    Kernels(), Rules(), Plain(), Paired(), Derived(), Mutated(), Branched(), Gathered(), Nearby(),
    Derived("further derivations", prior=Prior(gain=0.02, seconds=15.0), every=True),
)  # fmt: skip
#: of a model of heavy weights the best candidate stands alone, since each contender holds a copy of them
HEAVY: tuple[Generator, ...] = (Rules(),)
