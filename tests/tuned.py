"""Other numbers than the tuned ones of a module, for a test."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest


def tuned(monkeypatch: pytest.MonkeyPatch, module: str, **numbers: float) -> None:
    """Sets tuned numbers of a module of dslc until the test ends; a number that it has not is a TypeError."""
    place = importlib.import_module(f"dslc.{module}")
    name = "TUNING" if hasattr(place, "TUNING") else "_TUNING"
    monkeypatch.setattr(place, name, replace(getattr(place, name), **numbers))
