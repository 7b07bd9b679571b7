"""Conversion of chat completion chunks to the events of a response."""

from __future__ import annotations

__all__ = ("ResponseWriter",)

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

from aiomlc.api.protocol.chat import ChatCompletionChunk, ChoiceDeltaToolCall
from aiomlc.api.protocol.response import (
    FunctionCallItem,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseEvent,
    ResponseUsage,
)
from aiomlc.api.protocol.response_request import ResponseRequest
from aiomlc.api.protocol.usage import Usage

Item = ReasoningItem | MessageItem | FunctionCallItem


class _TextKind(NamedTuple):
    """A kind of item with streamed text, and the names of its events."""

    item: type[ReasoningItem] | type[MessageItem]
    part: type[ReasoningText] | type[OutputText]
    id_prefix: str
    event: str  #: The common prefix of the names of the text's events.
    event_fields: Mapping[str, object]  #: Additional fields of each of these events.


_REASONING = _TextKind(ReasoningItem, ReasoningText, "rs", "response.reasoning_text", {})
_MESSAGE = _TextKind(MessageItem, OutputText, "msg", "response.output_text", {"logprobs": []})


@final
class ResponseWriter:
    """A converter from the chunks of one chat completion to the events of one response."""

    def __init__(self, request: ResponseRequest, response_id: str, model: str) -> None:
        self._sequence_numbers = itertools.count()
        self._common = _request_fields(request) | {
            "id": response_id,
            "created_at": int(time.time()),
            "model": model,
        }
        self._output: list[Item] = []  # The complete items.
        self._open_item: Item | None = None  # The incomplete item; its text is in the deltas.
        self._deltas: list[str] = []
        self._is_truncated = False
        self._has_broken_call = False  # If the last item is a call.

    def begin(self) -> Iterator[ResponseEvent]:
        """Yield the events that precede any output."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress"))

    def events(self, chunk: ChatCompletionChunk) -> Iterator[ResponseEvent]:
        """Yield the events of one chunk; the chunk with the usage must be the last."""
        for choice in chunk.choices:
            if choice.delta.reasoning_content:
                yield from self._add_text(_REASONING, choice.delta.reasoning_content)
            if choice.delta.content:
                yield from self._add_text(_MESSAGE, choice.delta.content)
            for call in choice.delta.tool_calls or ():
                yield from self._add_call(call)
            if choice.finish_reason is not None:
                self._is_truncated = choice.finish_reason == "length"
                self._has_broken_call = choice.finish_reason != "tool_calls"
                yield from self._finish()
        if chunk.usage is not None:
            status = "incomplete" if self._is_truncated else "completed"
            response = self._response(status, usage=_to_response_usage(chunk.usage))
            yield self._event(f"response.{status}", response=response)

    def _add_text(self, kind: _TextKind, text: str) -> Iterator[ResponseEvent]:
        if not isinstance(self._open_item, kind.item):
            yield from self._close_item()
            yield from self._open_text(kind)

        yield self._add_delta(kind.event, text, content_index=0, **kind.event_fields)

    def _add_call(self, call: ChoiceDeltaToolCall) -> Iterator[ResponseEvent]:
        if call.id is not None:
            yield from self._close_item()
            yield self._start_item(
                FunctionCallItem(
                    id=f"fc_{uuid.uuid4().hex}",
                    call_id=call.id,
                    name=call.function.name or "",
                    arguments="",
                    status="in_progress",
                )
            )

        if call.function.arguments:
            yield self._add_delta("response.function_call_arguments", call.function.arguments)

    def _open_text(self, kind: _TextKind) -> Iterator[ResponseEvent]:
        item_id = f"{kind.id_prefix}_{uuid.uuid4().hex}"
        yield self._start_item(kind.item(id=item_id, status="in_progress", content=[]))
        yield self._item_event(
            "response.content_part.added", item_id, content_index=0, part=kind.part(text="")
        )

    def _finish(self) -> Iterator[ResponseEvent]:
        if self._open_item is None and not self._output:
            yield from self._open_text(_MESSAGE)  # An empty completion is an empty message.

        is_call = isinstance(self._open_item, FunctionCallItem)
        yield from self._close_item(
            is_truncated=self._is_truncated or (is_call and self._has_broken_call)
        )

    def _close_item(self, *, is_truncated: bool = False) -> Iterator[ResponseEvent]:
        status = "incomplete" if is_truncated else "completed"
        text = "".join(self._deltas)
        match self._open_item:
            case None:
                return
            case ReasoningItem(id=item_id):
                yield from self._close_text(_REASONING, item_id, text)
                content: list[Any] = [ReasoningText(text=text)]
                done: Item = self._open_item.model_copy(
                    update={"status": status, "content": content}
                )
            case MessageItem(id=item_id):
                yield from self._close_text(_MESSAGE, item_id, text)
                content = [OutputText(text=text)]
                done = self._open_item.model_copy(update={"status": status, "content": content})
            case FunctionCallItem(id=item_id):
                yield self._item_event(
                    "response.function_call_arguments.done", item_id, arguments=text
                )
                done = self._open_item.model_copy(update={"status": status, "arguments": text})

        yield self._event("response.output_item.done", output_index=len(self._output), item=done)
        self._output.append(done)
        self._open_item = None

    def _close_text(self, kind: _TextKind, item_id: str, text: str) -> Iterator[ResponseEvent]:
        yield self._item_event(
            f"{kind.event}.done", item_id, content_index=0, text=text, **kind.event_fields
        )
        part = kind.part(text=text)
        yield self._item_event("response.content_part.done", item_id, content_index=0, part=part)

    def _start_item(self, item: Item) -> ResponseEvent:
        self._open_item = item
        self._deltas = []
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _add_delta(self, name: str, delta: str, **fields: object) -> ResponseEvent:
        assert self._open_item is not None, "a delta follows the start of its item"
        self._deltas.append(delta)
        return self._item_event(f"{name}.delta", self._open_item.id, delta=delta, **fields)

    def _item_event(self, event_type: str, item_id: str, /, **fields: object) -> ResponseEvent:
        return self._event(event_type, output_index=len(self._output), item_id=item_id, **fields)

    def _event(self, event_type: str, /, **fields: object) -> ResponseEvent:
        return ResponseEvent.model_validate(
            {"type": event_type, "sequence_number": next(self._sequence_numbers), **fields}
        )

    def _response(self, status: str, usage: ResponseUsage | None = None) -> Response:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return Response.model_validate(
            {
                **self._common,
                "status": status,
                "incomplete_details": reason,
                "output": list(self._output),
                "usage": usage,
            }
        )


def _request_fields(request: ResponseRequest) -> dict[str, Any]:
    """Return the request's fields to echo in the response, with defaults for missing ones."""
    fields = request.model_dump(by_alias=True, exclude_none=True)
    tools = [{"parameters": None, "strict": None, **tool} for tool in fields.get("tools", ())]
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": fields.get("reasoning"),
        "temperature": request.temperature,
        "text": {"format": {"type": "text"}} | fields.get("text", {}),
        "tool_choice": fields.get("tool_choice", "auto"),
        "tools": tools,
        "top_p": request.top_p,
    }


def _to_response_usage(usage: Usage) -> ResponseUsage:
    details = usage.completion_tokens_details
    return ResponseUsage.model_validate(
        {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.prompt_tokens_details.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": details.reasoning_tokens if details else 0
            },
            "total_tokens": usage.total_tokens,
        }
    )
