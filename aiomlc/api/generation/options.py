"""The optional fields of requests as keyword arguments, and their documentation in signatures."""

from __future__ import annotations

__all__ = (
    "ChatOptions",
    "CompletionOptions",
    "GenerationOptions",
    "ParseOptions",
    "TokenOptions",
    "documents_options",
)

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ForwardRef, TypeVar

from aiomlc.api.protocol.chat_request import ReasoningEffort
from aiomlc.api.protocol.tools import ToolChoice
from aiomlc.runtime.engine.logits_processors import LogitsProcessor
from aiomlc.sampling_params import SamplingKwargs, SamplingParams
from aiomlc.validation.parameter import Doc

F = TypeVar("F", bound=Callable[..., object])
JsonObject = Mapping[str, Any]


class GenerationOptions(SamplingKwargs, total=False):
    """The optional fields of chats, text completions and token streams.

    Any other field of OpenAI's API is rejected by name.
    """

    model: Annotated[str | None, Doc("A name that the response repeats.")]
    logit_bias: Annotated[
        Mapping[str, float] | Mapping[int, float] | None,
        Doc("Added to the logits of tokens, by token id; from -100 to 100."),
    ]
    logits_processors: Annotated[
        Sequence[LogitsProcessor] | None, Doc("Functions that change the logits. Not JSON.")
    ]
    stop: Annotated[str | Sequence[str] | None, Doc("Strings that end the text; not part of it.")]
    stop_token_ids: Annotated[Sequence[int] | None, Doc("Token ids that end the text.")]
    add_special_tokens: Annotated[
        bool | None,
        Doc("Whether to add the tokenizer's special tokens to text; chats have them already."),
    ]
    split_special_tokens: Annotated[
        bool | None,
        Doc("Whether names of special tokens in texts of the request are plain text (False)."),
    ]
    request_id: Annotated[str | None, Doc("The id for `abort` (random).")]
    user: Annotated[str | None, Doc("A label without effect.")]
    safety_identifier: Annotated[str | None, Doc("A label without effect.")]
    metadata: Annotated[Mapping[str, str] | None, Doc("Labels without effect.")]
    extra_body: Annotated[JsonObject | None, Doc("Further fields, merged with the others.")]


class ParseOptions(GenerationOptions, total=False):
    """The optional fields of a chat whose response is parsed to a type."""

    stream_options: Annotated[
        JsonObject | None, Doc('{"include_usage": True} ends a stream with the usage.')
    ]
    n: Annotated[int | None, Doc("The number of choices (1).")]
    max_completion_tokens: Annotated[int | None, Doc("The newer name of `max_tokens`.")]
    logprobs: Annotated[bool | None, Doc("Whether to report log-probabilities (False).")]
    top_logprobs: Annotated[int | None, Doc("Alternatives to report for each token, up to 20.")]
    reasoning_effort: Annotated[ReasoningEffort | None, Doc("Passed to the chat template.")]
    separate_reasoning: Annotated[
        bool | None, Doc("False leaves the reasoning in the content (True).")
    ]
    chat_template_kwargs: Annotated[
        JsonObject | None, Doc("Variables for the chat template, such as `enable_thinking`.")
    ]
    add_generation_prompt: Annotated[
        bool | None, Doc("Whether the prompt ends with the header of an assistant message (True).")
    ]
    continue_final_message: Annotated[
        bool | None, Doc("Whether the response continues the last message (False).")
    ]
    tools: Annotated[Iterable[JsonObject] | None, Doc("Functions that the model may call.")]
    tool_choice: Annotated[
        ToolChoice | JsonObject | None,
        Doc('"auto", "none", "required", a function, or allowed tools ("auto").'),
    ]
    parallel_tool_calls: Annotated[bool | None, Doc("False allows at most one call (True).")]


class ChatOptions(ParseOptions, total=False):
    """The optional fields of a chat."""

    response_format: Annotated[
        JsonObject | None, Doc("A JSON schema or grammar that the text must follow.")
    ]


class TokenOptions(GenerationOptions, total=False):
    """The optional fields of a token stream."""

    n: Annotated[int | None, Doc("The number of choices (1).")]
    logprobs: Annotated[int | None, Doc("Alternatives to report for each token, up to 20.")]
    response_format: Annotated[
        JsonObject | None, Doc("A JSON schema or grammar that the text must follow.")
    ]


class CompletionOptions(TokenOptions, total=False):
    """The optional fields of a text completion."""

    stream_options: Annotated[
        JsonObject | None, Doc('{"include_usage": True} ends a stream with the usage.')
    ]
    echo: Annotated[bool | None, Doc("Whether the text begins with the prompt (False).")]
    best_of: Annotated[int | None, Doc("Choices to generate, of which the best `n` are returned.")]
    suffix: Annotated[str | None, Doc("The text after the gap, for fill-in-the-middle models.")]


def documents_options(options: type) -> Callable[[F], F]:
    """Return a decorator that shows a method's `**options` in its signature and docstring.

    IPython completes the names, and `help()` has a sentence for each.
    """
    fields = _documented_fields(options)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        explicit = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = [name for name in fields if name not in signature.parameters]
        implicit = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for name, (hint, _) in fields.items()
            if name in names
        ]
        documented: Any = function
        documented.__signature__ = signature.replace(parameters=[*explicit, *implicit])
        sentences = [f"    {name}: {fields[name][1]}" for name in names]
        text = inspect.cleandoc(function.__doc__ or "")
        documented.__doc__ = "\n".join([text, "", "Options:", *sentences])
        return function

    return decorate


@cache
def _documented_fields(options: type) -> dict[str, tuple[str, str]]:
    """Return the type and the sentence of each field of a TypedDict."""
    return {
        name: _parse_annotation(SamplingParams.__annotations__.get(name) or annotation)
        for name, annotation in options.__annotations__.items()
    }


def _parse_annotation(annotation: str | ForwardRef) -> tuple[str, str]:
    """Return the type and the sentence of an annotation, which need not be evaluated for that."""
    text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
    hint = ast.parse(text, mode="eval").body
    if not (isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple)):
        return text, ""

    calls = [part for part in hint.slice.elts if isinstance(part, ast.Call)]
    sentences = [
        ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "Doc"
    ]
    return ast.unparse(hint.slice.elts[0]), " ".join(sentences)
