"""The generators of a run. Adding one is a file with a frozen dataclass, and a line here."""

from __future__ import annotations

from dslc.search.generators.combine_findings import CombineFindings
from dslc.search.generators.kernels import Kernels
from dslc.search.generators.neighbourhood import Neighbourhood
from dslc.search.generators.protocol import Generator
from dslc.search.generators.region_rewrites import FURTHER, REGION_REWRITES
from dslc.search.generators.rules import Rules
from dslc.search.generators.standard_nodes import StandardNodes

#: whoever proposes candidates; where two promise as much the first one is asked
GENERATORS: tuple[Generator, ...] = (
    Kernels(), Rules(), StandardNodes(), *REGION_REWRITES, CombineFindings(), Neighbourhood(),
    FURTHER,
)  # fmt: skip
#: of a model of heavy weights the best candidate stands alone, since each contender holds a copy of them
HEAVY: tuple[Generator, ...] = (Rules(),)
