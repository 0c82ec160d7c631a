"""Models on CUDA devices: plans of vendors' calls and generated kernels, and sessions that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslc.cuda.launch import CudaFailure, Reason
    from dslc.cuda.session import Session

__all__ = ["CudaFailure", "Reason", "Session"]


def __getattr__(name: str) -> Any:
    """Sessions are looked up when they are wanted: importing the package imports no library."""
    from importlib import import_module

    places = {"Session": "session", "CudaFailure": "launch", "Reason": "launch"}
    if name not in places:
        raise AttributeError(name)
    return getattr(import_module(f"dslc.cuda.{places[name]}"), name)
