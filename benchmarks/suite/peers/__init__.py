"""The programs beside which the suite measures aiomlc, one module each, and how they are driven."""

from __future__ import annotations

__all__ = ()
