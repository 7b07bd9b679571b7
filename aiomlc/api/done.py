"""What a call returns that has done its work already, for callers that await it."""

from __future__ import annotations

__all__ = ("Done",)

from collections.abc import Generator
from typing import Any, final

from anyio.lowlevel import checkpoint


@final
class Done:
    """Nothing to wait for; awaiting it is a checkpoint."""

    def __await__(self) -> Generator[Any, Any, None]:
        return checkpoint().__await__()
