"""A model's Jinja chat template, in a sandbox and in the environment of transformers."""

from __future__ import annotations

__all__ = ("ChatTemplate",)

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Self, final

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.utils import Namespace

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.output_formats.tool_history import with_parsed_arguments
from aiomlc.runtime.templates.message_forms import render_in_a_form
from aiomlc.runtime.templates.render_budget import (
    Buffer,
    RenderBudgetError,
    TemplateLimitError,
    active_budget,
)
from aiomlc.runtime.templates.sandbox import BudgetedEnvironment
from aiomlc.runtime.templates.template_files import DEFAULT, TOOL_USE, read_template_files
from aiomlc.validation.model_files import load_errors

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
# Appended to the final message's content, to find its end within the prompt. These are private-use
# characters, which templates do not change.
_END_OF_CONTENT = "\ue000\ue001\ue000"
# The names of the reasoning of a message. As in transformers, templates get the first two.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_MAX_SOURCE = 512 * 1024  # Characters of a template.
_MAX_TAGS = 10_000  # Of a template: with more, compiling takes seconds.
_MAX_ERROR = 500  # Characters of an error that a template raises.
_MAX_TIME_FORMAT = 100  # Characters.
_TIME_WIDTH = re.compile(r"%[^a-zA-Z%]*\d")


@final
class ChatTemplate:
    """A Jinja chat template, which renders messages to a prompt. Thread-safe.

    Args:
        special_tokens: The texts of special tokens by variable name, such as `bos_token`.
        tool_use: The template of chats that offer tools; None for this one.

    Raises:
        ModelLoadError: If the template is invalid.
    """

    # Only conversation templates define these.
    system_prefix_token_ids: tuple[int, ...] | None = None
    stop_str: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        tool_use: ChatTemplate | None = None,
    ) -> None:
        _check_source(source)
        try:
            self._template, self._variables = _compile(source)
        except Exception as error:  # Of Jinja's parser or of Python's compiler.
            reason = str(error)[:_MAX_ERROR] or type(error).__name__
            raise ModelLoadError(
                f"invalid chat template: {reason}", field="chat_template"
            ) from error

        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._supports_developer = "developer" in source
        self._tool_use = tool_use

    @classmethod
    def load(cls, files: ConfigFiles) -> Self | None:
        """Return the template of a model directory, or None if it has none.

        Named templates are chosen as in transformers: `tool_use` if a chat offers tools, else
        `default`. The `tokenizer_config.json` also defines the special tokens.

        Raises:
            ModelLoadError: If a file cannot be read or a template is invalid.
        """
        templates = read_template_files(files)
        if DEFAULT not in templates:
            return None

        tokens = _special_tokens(files.object("tokenizer_config.json") or {})
        tool_use = None
        if (file := templates.get(TOOL_USE)) is not None:
            with load_errors(file.path):
                tool_use = cls(file.source, tokens)

        with load_errors(templates[DEFAULT].path):
            return cls(templates[DEFAULT].source, tokens, tool_use=tool_use)

    def for_chat(self, *, has_tools: bool) -> ChatTemplate:
        """Return the template of chats with or without tools."""
        return self._tool_use if has_tools and self._tool_use is not None else self

    def has_variable(self, name: str) -> bool:
        """Whether the template reads a variable of this name."""
        return name in self._variables

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        image_placeholder: str = "",
        **variables: object,
    ) -> str:
        """Return the prompt of a chat.

        Raises:
            BadRequestError: If the template rejects the messages or fails.
            TemplateLimitError: If the template exceeds the active `RenderBudget`.
        """
        messages = [self._template_message(message) for message in messages]
        if continue_final_message:
            messages[-1] = _with_end(messages[-1])

        context = {
            **self._special_tokens,
            **variables,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        with active_budget().active():
            prompt = render_in_a_form(
                lambda form: self._write({**context, "messages": form}), messages, image_placeholder
            )

        return _truncate(prompt) if continue_final_message else prompt

    def _write(self, context: Mapping[str, Any]) -> str:
        budget = active_budget()
        try:
            values = self._template.new_context(_to_plain_json(context))
            prompt = Buffer(budget)
            # Not `generate`, which rewrites the tracebacks of errors.
            prompt.extend(self._template.root_render_func(values))
            return "".join(prompt)
        except RenderBudgetError as error:
            raise TemplateLimitError(
                f"the model's chat template {error}", param="messages"
            ) from None
        except BadRequestError:
            raise
        except Exception as error:  # noqa: BLE001 - templates raise anything for unexpected values.
            raise BadRequestError(
                f"the model's chat template rejected the messages: {str(error)[:_MAX_ERROR]}",
                param="messages",
            ) from None

    def _template_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        message = dict(message)
        if message.get("role") == "developer" and not self._supports_developer:
            message["role"] = "system"

        if calls := message.get("tool_calls"):
            message["tool_calls"] = [with_parsed_arguments(call) for call in calls]

        reasoning = next((each for each in map(message.get, _REASONING) if each is not None), None)
        if reasoning is not None:
            message = {_REASONING[1]: reasoning, **message, _REASONING[0]: reasoning}

        return message


class _GenerationTag(Extension):
    """The tag `{% generation %}`, which marks assistant output for training and is ignored here."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so.

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _RestrictedNamespace(Namespace):
    """A namespace without private names, which could be used to escape the sandbox."""

    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: ANN401 - as `dict`.
        super().__init__(_restricted_dict(*args, **values))

    def __setitem__(self, name: str, value: object) -> None:
        _reject_private(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # Namespaces that contain each other have no finite text.


def _with_end(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose content ends with the end marker."""
    content = message["content"]
    if not isinstance(content, list):
        return {**message, "content": f"{content}{_END_OF_CONTENT}"}

    *others, last = content
    return {**message, "content": [*others, {**last, "text": f"{last['text']}{_END_OF_CONTENT}"}]}


def _truncate(prompt: str) -> str:
    """Return the prompt up to the end of the last message's content."""
    prompt, marker, _ = prompt.rpartition(_END_OF_CONTENT)
    if not marker:
        raise BadRequestError(
            "the model's chat template does not contain the final message verbatim",
            param="continue_final_message",
        )

    return prompt


def _check_source(source: str) -> None:
    for size, limit, unit in (
        (len(source), _MAX_SOURCE, "characters"),
        (source.count("{{") + source.count("{%"), _MAX_TAGS, "tags"),
    ):
        if size > limit:
            raise ModelLoadError(
                f"the chat template has {size} {unit}; at most {limit} are supported",
                field="chat_template",
            )


def _compile(source: str) -> tuple[jinja2.Template, frozenset[str]]:
    """Return the compiled template, and the variables that it reads."""
    environment = BudgetedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[LoopControlExtension, _GenerationTag],
    )
    environment.add_filter("tojson", _to_json)
    environment.globals |= {
        "dict": _restricted_dict,
        "namespace": _RestrictedNamespace,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    tree = environment.parse(source)
    variables = frozenset(meta.find_undeclared_variables(tree))
    return environment.from_string(tree), variables


def _restricted_dict(*args: Any, **values: Any) -> dict[Any, Any]:  # noqa: ANN401 - as `dict`.
    result = dict(*args, **values)
    for name in result:
        _reject_private(name)

    active_budget().check_tree(result)
    return result


def _reject_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the name {name!r} is private")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which the prompts of training data do not contain.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 - templates may pass it by name.
    if len(format) > _MAX_TIME_FORMAT or _TIME_WIDTH.search(format):
        raise ValueError(
            f"strftime_now: the format must have at most {_MAX_TIME_FORMAT} characters "
            "and no widths"
        )

    return datetime.now().strftime(format)


def _to_plain_json(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Copy a value to plain JSON types, so that a template cannot reach any other object."""
    if value is None or isinstance(value, bool):
        return value

    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)

    if isinstance(value, Mapping):
        return {str(key): _to_plain_json(inner) for key, inner in value.items()}

    if isinstance(value, Sequence):
        return [_to_plain_json(inner) for inner in value]

    raise BadRequestError(f"expected a JSON value, got {type(value).__name__}", param="messages")


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")

        if isinstance(token, str):
            tokens[name] = token

    return tokens
