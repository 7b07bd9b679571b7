"""The check that an engine records trace events."""

from __future__ import annotations

__all__ = ("check_tracing",)

from aiomlc.config import EngineConfig
from aiomlc.errors import EngineError


def check_tracing(config: EngineConfig) -> None:
    """Require that tracing is enabled.

    Raises:
        EngineError: If the configuration does not enable tracing.
    """
    if not config.enable_tracing:
        raise EngineError("tracing is disabled: create the engine with enable_tracing=True")
