"""The environment variables of huggingface_hub, read when a model is opened.

huggingface_hub itself reads them once, when it is imported; it is only imported by the downloading
process.
"""

from __future__ import annotations

__all__ = ("HubEnvironment", "read_environment")

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})
_ENDPOINT: Final = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class HubEnvironment:
    """The hub's address, and the directory of its cache."""

    cache: Path  #: The directory that contains `models--user--name`.
    endpoint: str  #: The URL of the hub, without a slash at its end.
    is_offline: bool  #: Whether the hub must not be asked.


def read_environment() -> HubEnvironment:
    """Return the current environment."""
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return HubEnvironment(
        cache=_expand(_path("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") or _home() / "hub"),
        endpoint=(os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/"),
        is_offline=offline.upper() in _TRUE,
    )


def _home() -> Path:
    if home := _path("HF_HOME"):
        return home

    return (_path("XDG_CACHE_HOME") or Path("~/.cache")) / "huggingface"


def _path(*variables: str) -> Path | None:
    for name in variables:
        if value := os.environ.get(name):
            return Path(os.path.expandvars(value))
    return None


def _expand(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # The user is unknown: a directory of that name, as for huggingface_hub.
        return path.absolute()
