"""Other numbers than the tuned ones of a module, for a test."""

from __future__ import annotations

import importlib

import pytest


def tuned(monkeypatch: pytest.MonkeyPatch, module: str, **numbers: float) -> None:
    """Sets tuned numbers of a module of dslc until the test ends; a number that it has not is an AttributeError."""
    place = importlib.import_module(f"dslc.{module}")
    for name, number in numbers.items():
        monkeypatch.setattr(place, name.upper(), number)
