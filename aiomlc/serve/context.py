"""The state that the endpoints of one application share."""

from __future__ import annotations

__all__ = ("Context",)

from collections import Counter
from dataclasses import dataclass, field

from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.serve.http.admission import Admission
from aiomlc.serve.models import ModelRegistry
from aiomlc.serve.options import ServerOptions


@dataclass(frozen=True, slots=True)
class Context:
    """The models of an application, its options and its counts."""

    models: ModelRegistry
    options: ServerOptions
    admission: Admission
    #: The record of unsupported fields; None if they are rejected.
    ignored: IgnoredFields | None
    statuses: Counter[int] = field(default_factory=Counter)  #: Responses by HTTP status.
