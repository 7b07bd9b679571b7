"""The choice of the parser for a model's output format."""

from __future__ import annotations

__all__ = ("check_tools", "parser_factory")

from collections.abc import Callable
from functools import partial

from aiomlc.api.chat.channel_parser import ChannelParser
from aiomlc.api.chat.choice_parser import ChoiceParser, MarkedParser
from aiomlc.api.chat.preparation import PreparedChat
from aiomlc.api.chat.reasoning import ReasoningParser
from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.api.protocol.chat_request import ChatCompletionRequest
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel


def check_tools(request: ChatCompletionRequest, model: LoadedModel) -> None:
    """Require that the model can call the tools that a request offers.

    Raises:
        BadRequestError: If it cannot.
    """
    if request.offered_tools and model.tool_format is None and model.channel_format is None:
        raise BadRequestError(
            "tools: the model's chat template has no supported tool-call format", param="tools"
        )


def parser_factory(
    request: ChatCompletionRequest, model: LoadedModel, chat: PreparedChat
) -> Callable[[], ChoiceParser] | None:
    """Return the factory of each choice's parser; None if all text is content."""
    separates = request.separate_reasoning is not False
    offers_tools = bool(request.offered_tools)
    if model.channel_format is not None:
        if not separates and not offers_tools:
            return None

        return partial(
            ChannelParser,
            model.channel_format,
            model.channel_format.open_message(chat.prompt),
            offers_tools=offers_tools,
            separates_reasoning=separates,
            has_response_format=_has_response_format(request),
        )

    reasons = separates and model.reasoning_format is not None
    if not reasons and not offers_tools:
        return None

    return partial(_marked_parser, request, model, chat)


def _marked_parser(
    request: ChatCompletionRequest, model: LoadedModel, chat: PreparedChat
) -> MarkedParser:
    reasoning, calls = None, None
    if model.reasoning_format is not None and request.separate_reasoning is not False:
        reasoning = ReasoningParser(model.reasoning_format, starts_in_reasoning=chat.in_reasoning)
    if request.offered_tools and model.tool_format is not None:
        functions = [tool.function for tool in request.offered_tools]
        calls = ToolCallParser(
            model.tool_format,
            {function.name: function.parameters or {} for function in functions},
            has_response_format=_has_response_format(request),
        )
    return MarkedParser(reasoning, calls)


def _has_response_format(request: ChatCompletionRequest) -> bool:
    response_format = request.response_format
    return response_format is not None and response_format.type != "text"
