"""The bodies of `/microserving/...`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Completion(BaseModel):
    """A completion; its other fields are those of `CompletionRequest`."""

    model_config = ConfigDict(extra="allow")

    prompt: Any


class PrepRecvRequest(_Completion):
    """Prepare to receive the keys and values of the first `end` tokens."""

    end: int


class PrepRecvResponse(BaseModel):
    """Where they are sent to, and how many are there."""

    kv_append_metadata: str
    prefix_matched_length: int


class RemoteSendRequest(_Completion):
    """Send keys and values to another server."""

    begin: int
    end: int
    kv_addr_info: str
    recv_rank: int


class StartGenerateRequest(_Completion):
    """Generate after the keys and values of `begin` tokens have arrived."""

    begin: int
