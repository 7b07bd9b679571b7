"""From a chat's chunks to a response's events: the one place that knows both."""

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
    """An item with a text that grows, and what its events are called."""

    item: type[ReasoningItem] | type[MessageItem]
    part: type[ReasoningText] | type[OutputText]
    id_prefix: str
    event: str
    more: Mapping[str, object]  #: Of every event of the text.


_THOUGHTS = _TextKind(ReasoningItem, ReasoningText, "rs", "response.reasoning_text", {})
_ANSWER = _TextKind(MessageItem, OutputText, "msg", "response.output_text", {"logprobs": []})


@final
class ResponseWriter:
    """Writes the events of one answer, in order."""

    def __init__(self, request: ResponseRequest, response_id: str, model: str) -> None:
        self._numbers = itertools.count()
        self._common = _echo(request) | {
            "id": response_id,
            "created_at": int(time.time()),
            "model": model,
        }
        self._output: list[Item] = []  # The items that are done.
        self._open: Item | None = None  # The one that grows; its text is in the pieces.
        self._pieces: list[str] = []
        self._is_cut = False

    def begin(self) -> Iterator[ResponseEvent]:
        """What is told before the model says anything."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress"))

    def events(self, chunk: ChatCompletionChunk) -> Iterator[ResponseEvent]:
        """What one chunk adds. The chunk with the usage is the last."""
        for choice in chunk.choices:
            if choice.delta.reasoning_content:
                yield from self._add_text(_THOUGHTS, choice.delta.reasoning_content)
            if choice.delta.content:
                yield from self._add_text(_ANSWER, choice.delta.content)
            for call in choice.delta.tool_calls or ():
                yield from self._add_call(call)
            if choice.finish_reason is not None:
                self._is_cut = choice.finish_reason == "length"
                yield from self._end()
        if chunk.usage is not None:
            status = "incomplete" if self._is_cut else "completed"
            response = self._response(status, usage=_usage(chunk.usage))
            yield self._event(f"response.{status}", response=response)

    def _add_text(self, kind: _TextKind, text: str) -> Iterator[ResponseEvent]:
        if not isinstance(self._open, kind.item):
            yield from self._close()
            yield from self._open_text(kind)

        yield self._grow(kind.event, text, content_index=0, **kind.more)

    def _add_call(self, call: ChoiceDeltaToolCall) -> Iterator[ResponseEvent]:
        if call.id is not None:
            yield from self._close()
            yield self._added(
                FunctionCallItem(
                    id=f"fc_{uuid.uuid4().hex}",
                    call_id=call.id,
                    name=call.function.name or "",
                    arguments="",
                    status="in_progress",
                )
            )

        if call.function.arguments:
            yield self._grow("response.function_call_arguments", call.function.arguments)

    def _open_text(self, kind: _TextKind) -> Iterator[ResponseEvent]:
        item_id = f"{kind.id_prefix}_{uuid.uuid4().hex}"
        yield self._added(kind.item(id=item_id, status="in_progress", content=[]))
        yield self._of_item(
            "response.content_part.added", item_id, content_index=0, part=kind.part(text="")
        )

    def _end(self) -> Iterator[ResponseEvent]:
        if self._open is None and not self._output:
            yield from self._open_text(_ANSWER)  # An answer of no text is a message of none.

        yield from self._close(is_cut=self._is_cut)

    def _close(self, *, is_cut: bool = False) -> Iterator[ResponseEvent]:
        status = "incomplete" if is_cut else "completed"
        text = "".join(self._pieces)
        match self._open:
            case None:
                return
            case ReasoningItem(id=item_id):
                yield from self._close_text(_THOUGHTS, item_id, text)
                content: list[Any] = [ReasoningText(text=text)]
                done: Item = self._open.model_copy(update={"status": status, "content": content})
            case MessageItem(id=item_id):
                yield from self._close_text(_ANSWER, item_id, text)
                content = [OutputText(text=text)]
                done = self._open.model_copy(update={"status": status, "content": content})
            case FunctionCallItem(id=item_id):
                yield self._of_item(
                    "response.function_call_arguments.done", item_id, arguments=text
                )
                done = self._open.model_copy(update={"status": status, "arguments": text})

        yield self._event("response.output_item.done", output_index=len(self._output), item=done)
        self._output.append(done)
        self._open = None

    def _close_text(self, kind: _TextKind, item_id: str, text: str) -> Iterator[ResponseEvent]:
        yield self._of_item(f"{kind.event}.done", item_id, content_index=0, text=text, **kind.more)
        part = kind.part(text=text)
        yield self._of_item("response.content_part.done", item_id, content_index=0, part=part)

    def _added(self, item: Item) -> ResponseEvent:
        self._open = item
        self._pieces = []
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _grow(self, name: str, delta: str, **fields: object) -> ResponseEvent:
        assert self._open is not None, "an item was added"
        self._pieces.append(delta)
        return self._of_item(f"{name}.delta", self._open.id, delta=delta, **fields)

    def _of_item(self, kind: str, item_id: str, /, **fields: object) -> ResponseEvent:
        return self._event(kind, output_index=len(self._output), item_id=item_id, **fields)

    def _event(self, kind: str, /, **fields: object) -> ResponseEvent:
        return ResponseEvent.model_validate(
            {"type": kind, "sequence_number": next(self._numbers), **fields}
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


def _echo(request: ResponseRequest) -> dict[str, Any]:
    """The request's own fields in its answer, with what stands for those it left out."""
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


def _usage(usage: Usage) -> ResponseUsage:
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
