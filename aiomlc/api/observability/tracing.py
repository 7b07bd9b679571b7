"""Whether an engine records events."""

from __future__ import annotations

__all__ = ("check_tracing",)

from aiomlc.config import EngineConfig
from aiomlc.errors import EngineError


def check_tracing(config: EngineConfig) -> None:
    """Refuse a trace that was not recorded.

    Raises:
        EngineError: the configuration did not enable it.
    """
    if not config.enable_tracing:
        raise EngineError("the engine records no events: open it with enable_tracing=True")
