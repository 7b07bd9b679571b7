"""`Request`, whose inputs may be one part of a prompt."""

from __future__ import annotations

from typing import Any

from aiomlc.api.step import data
from mlc_llm.protocol.generation_config import frozen


class Request(data.Request):
    """A request for `SyncMLCEngine.add_request`."""

    def __new__(cls, request_id: str, inputs: Any, generation_config: Any = None) -> Request:
        return super().__new__(
            cls, request_id, data.parse_inputs(inputs), frozen(generation_config)
        )
