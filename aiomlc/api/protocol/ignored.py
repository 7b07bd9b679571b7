"""The unsupported fields that a server ignores instead of rejecting the request."""

from __future__ import annotations

__all__ = ("IgnoredFields", "IgnoringRequest")

import logging
import re
from typing import Self, final

from pydantic import PrivateAttr

from aiomlc.api.protocol.base import WireModel

_LOG = logging.getLogger("aiomlc")
_INDEX = re.compile(r"\[\d+\]")
_MAX_NAMES = 100
_MAX_LENGTH = 100


@final
class IgnoredFields:
    """The names of the fields that were ignored, each of which is logged once. Thread-safe."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, path: str) -> None:
        """Note that a field was ignored."""
        # Clients choose the names, so their number and length are limited.
        name = _INDEX.sub("[]", path[:_MAX_LENGTH])
        if name in self._names or len(self._names) >= _MAX_NAMES:
            return

        self._names.add(name)
        is_last = len(self._names) == _MAX_NAMES
        more = "; further names are not logged" if is_last else ""
        _LOG.warning("requests have a field that is not supported and ignored: %r%s", name, more)


class IgnoringRequest(WireModel):
    """A request that knows where to note what is ignored after its validation."""

    _ignored: IgnoredFields | None = PrivateAttr(default=None)

    @property
    def ignored_fields(self) -> IgnoredFields | None:
        """The collector of ignored fields; None means that they are rejected."""
        return self._ignored

    def ignoring(self, ignored: IgnoredFields | None) -> Self:
        """Return this request, which notes ignored fields there from now on."""
        self._ignored = ignored
        return self
