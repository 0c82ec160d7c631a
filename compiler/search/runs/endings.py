"""Ways in which a run ends, each with the sentence that a report has of it."""

from __future__ import annotations

from enum import StrEnum


class Ending(StrEnum):
    """A way in which a run ends: its sentence, with a place for the detail."""

    # a rewritten model is written
    FASTER = ""
    PRICED = "priced, not measured: {}"
    UNTIMED = "chosen by predicted time, not measured"
    CANONICAL = "only normalized: a budget of 0 measures nothing"
    APPLIED = "rules applied, not timed{}"
    STOPPED_TIMING = "interrupted while it was timed: {}"
    STOPPED_CHECKED = "interrupted: the best so far, its outputs compared, not timed"
    # the original is kept: nothing was found that could be timed
    NO_GAIN = "no rewrite is predicted to be faster"
    NO_GAIN_IN_TIME = "the budget ended before anything faster was found"
    LEFT_OUT = "{}"
    NOT_EQUAL = "what was found changes outputs by more than the tolerance, or is not proved at this model's shapes"
    NO_TIME_TO_CHECK = "the budget of {} s left no time to check a rewritten model"
    UNMATCHED = "no rule of --apply matches, and its nodes are as few as can be"
    MORE_NODES = "normalizing it adds nodes"
    REFUSED = "ONNX Runtime loads it, but refuses its normalized form"
    # it cannot be compared
    UNLOADABLE = "ONNX Runtime cannot load it: {}"
    UNRUNNABLE = "ONNX Runtime cannot run it on {}"
    TOO_SLOW = "it did not run within the budget of {} s"
    TOO_LARGE = "it can be neither checked nor timed: {}"
    RANDOM = "its outputs differ between two runs on the same inputs: {}"
    UNSTABLE = "its outputs depend on rounding or on ONNX Runtime's own optimizations, and cannot be compared"
    NO_IMPORT = "importing and exporting it, without any rule, changes its outputs: {}"
    UNPLANNED = "there is no plan for it: {}"
    # what was found is not taken
    NO_FASTER = "no rewritten model was measured to be faster (best: {})"
    MIXED = "the rewritten model is faster at some sizes ({}), but slower at others"
    UNDECIDED = "the budget ended before timing could decide: {}"
    NO_TIME_TO_TIME = "the budget of {} s left no time to time a rewritten model"
    NO_ROOM = "it cannot be timed against a rewritten model: {}"
    TIMING_FAILED = "timing failed: {}"
    SLOWER_ALONE = "{} (--library-only takes it)"
    NO_PLAN = "no rewritten model has a plan"
    NO_FASTER_PLAN = "no plan of a rewritten model is faster ({})"
    STOPPED_NO_FASTER = "interrupted: nothing timed so far is faster ({})"
    STOPPED_EARLY = "interrupted before a rewritten model was checked"
    STOPPED_READING = "interrupted while rules and the model were read"
