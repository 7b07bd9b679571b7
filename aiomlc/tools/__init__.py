"""The tools that make models: convert weights, write MLC's configuration, compile a library."""

from __future__ import annotations

__all__ = ()
