"""The options of a run as types, so that a type checker finds a misspelt one; `options/settings` has what they mean.

A test holds these to the fields of `Settings` and of the strategies, and to the arguments of `dslc.optimize`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from dslc.cost.targets import Target
from dslc.search.options.strategies import Strategy

PathLike: TypeAlias = str | os.PathLike[str]
#: inputs of a model: an `.npz` file or a folder of them; or arrays (whatever numpy makes arrays of) by the names of inputs
InputsLike: TypeAlias = PathLike | Mapping[str, Any] | Sequence[Mapping[str, Any]]
Layouts: TypeAlias = Literal["joint", "after", "only", "none"]
#: a name of the registry (`dslc list targets`), or a target of one's own
Place: TypeAlias = str | Target
Isa: TypeAlias = Literal["x86-64-v2", "x86-64-v3", "x86-64-v4", "native"]
Portable: TypeAlias = Literal["functions", "inline"]
#: ways to take a program out of an e-graph
Extraction: TypeAlias = Literal["default", "shared", "joint", "ilp"]
StrategyName: TypeAlias = Literal["backtrack", "saturate", "mcts", "auto"]


class StrategyOptions(TypedDict, total=False):
    """Options of some strategies beside the options of every run."""

    enodes: int
    rounds: int
    k_multi: int
    finalists: int
    final: Extraction
    tensat: bool
    tidy: bool
    whole: bool
    simulations: int
    rollout: int
    exploration: float
    stop: float
    reward: Extraction
    matches: int
    near: float
    mixed: bool
    ranked: int


class Options(StrategyOptions, total=False):
    """All options of `dslc.optimize`."""

    rules: PathLike | Sequence[PathLike]
    trust: str | Sequence[str]
    trust_lock: bool
    only: str | Sequence[str]
    disable: str | Sequence[str]
    allow: str | Sequence[str]
    layouts: Layouts
    on: Place
    device: str | None
    isa: Isa | None
    library_only: bool
    portable: Portable
    apply: bool | str | Sequence[str] | None
    budget: float | str
    patience: float | str | None
    alpha: float
    seed: int
    steps: int | None
    tolerance: float | None
    bind: Mapping[str, int | Sequence[int]] | None
    inputs: InputsLike | None
    threads: int | None
    timing: bool
    derive: bool
    mutate: bool
    mutant_limit: float
    mutant_depth: int
    mutant_operators: int
    mutant_rounds: int
    mutants_kept: int
    strategy: StrategyName | Strategy
    file_growth: float
    specialize: bool
    strict_floats: bool
    cache: PathLike | None


class SessionOptions(TypedDict, total=False):
    """Attributes of `onnxruntime.SessionOptions`; enumerations are ONNX Runtime's."""

    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    execution_mode: Any
    execution_order: Any
    graph_optimization_level: Any
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    profile_file_prefix: str
    use_deterministic_compute: bool
    use_per_session_threads: bool
