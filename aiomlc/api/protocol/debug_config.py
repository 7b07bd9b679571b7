"""MLC LLM's `debug_config` of a request."""

from __future__ import annotations

__all__ = ("DebugConfig", "check_debug_config")

from typing import Literal

from pydantic import StrictBool

from aiomlc.api.protocol.base import WireModel
from aiomlc.errors import BadRequestError


class DebugConfig(WireModel):
    """MLC LLM's options for programs that test or measure an engine, in `extra_body`."""

    ignore_eos: StrictBool = False  #: As the field of a request.
    #: Whether to keep the sequence in the prefix cache until `reset`.
    pinned_system_prompt: StrictBool = False
    #: A chat that returns the engine's metrics in `usage.extra`, and generates nothing.
    special_request: Literal["query_engine_metrics"] | None = None
    #: Without effect: tokens that a grammar forces are never sampled, and the text is the same.
    grammar_execution_mode: Literal["constraint", "jump_forward"] = "jump_forward"
    disagg_config: object = None  #: Rejected unless None.


def check_debug_config(
    config: DebugConfig, *, is_chat: bool, stream: bool, include_usage: bool
) -> None:
    """Reject options that are not supported, or not for this kind of request.

    Raises:
        BadRequestError: If an option is rejected; `param` names it.
    """
    if config.disagg_config is not None:
        param = "debug_config.disagg_config"
        raise BadRequestError(f"{param} is not supported yet", param=param)

    if config.special_request is None:
        return

    param = "debug_config.special_request"
    if not is_chat:
        raise BadRequestError(f"{param} is supported in chat completions only", param=param)

    if not stream:
        raise BadRequestError("DebugConfig.special_request requires stream=True", param=param)

    if not include_usage:
        raise BadRequestError(
            "DebugConfig.special_request requires include_usage in stream_options", param=param
        )
