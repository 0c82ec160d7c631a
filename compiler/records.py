"""Records: data classes that do not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen data class with slots."""
    return dataclass(frozen=True, slots=True)(cls)
