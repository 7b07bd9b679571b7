"""A model's own chat template: Jinja in a sandbox, in the environment that its authors test in."""

from __future__ import annotations

__all__ = ("ChatTemplate",)

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, final

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.output_formats.tool_history import with_arguments

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
# Marks the end of a text within a prompt; no template changes letters of this kind.
_CUT_HERE = "\ue000\ue001\ue000"
# What the code of a template can raise when it meets a value its author did not think of.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@final
class ChatTemplate:
    """Turn a conversation into the prompt its model was trained on. Thread-safe."""

    # What only a conversation template has.
    system_prefix_token_ids: ClassVar[tuple[int, ...] | None] = None
    stop_str: ClassVar[tuple[str, ...]] = ()
    stop_token_ids: ClassVar[tuple[int, ...]] = ()

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self._variables = meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise ModelLoadError(
                f"the chat template is not valid: {error}", field="chat_template"
            ) from error

        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._knows_developer = "developer" in source

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """The template of a model directory; None if it has none.

        It is `chat_template.jinja`, else the field of `tokenizer_config.json`, which also names
        the special tokens.

        Raises:
            ModelLoadError: a file is unreadable or the template is not valid.
        """
        config_path = directory / "tokenizer_config.json"
        template_path = directory / "chat_template.jinja"
        try:
            config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
            source = template_path.read_text("utf-8") if template_path.is_file() else None
        except (OSError, ValueError) as error:
            raise ModelLoadError(
                f"the chat template cannot be read: {error}", path=directory, field="chat_template"
            ) from error

        if source is None:
            source = _default_template(config.get("chat_template"))

        return None if source is None else cls(source, _special_tokens(config))

    def takes(self, name: str) -> bool:
        """Whether the template knows a variable."""
        return name in self._variables

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> str:
        """The prompt of `messages`; one to be continued ends with the last message's content.

        Raises:
            BadRequestError: the template refuses the conversation, or fails on it.
        """
        if continue_final_message:
            last = messages[-1]
            messages = [*messages[:-1], {**last, "content": f"{last['content']}{_CUT_HERE}"}]

        context = {
            **self._special_tokens,
            **variables,
            "messages": [self._message(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            prompt = self._template.render(_plain(context))
        except _TEMPLATE_FAILURES as error:
            raise BadRequestError(
                f"the model's chat template refuses the messages: {error}", param="messages"
            ) from error

        return _cut(prompt) if continue_final_message else prompt

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        message = dict(message)
        if message.get("role") == "developer" and not self._knows_developer:
            message["role"] = "system"

        if calls := message.get("tool_calls"):
            message["tool_calls"] = [with_arguments(call) for call in calls]

        return message


class _GenerationTag(Extension):
    """`{% generation %}`: marks what the assistant said, for training; here only its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so.

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _RestrictedNamespace(Namespace):
    """A namespace without private names, which are doors out of the sandbox."""

    def __init__(self, *args: Any, **values: Any) -> None:  # noqa: ANN401 - as `dict`.
        super().__init__(_restricted_dict(*args, **values))

    def __setitem__(self, name: str, value: object) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _cut(prompt: str) -> str:
    """The prompt up to where the content of its last message ends."""
    prompt, mark, _ = prompt.rpartition(_CUT_HERE)
    if not mark:
        raise BadRequestError(
            "the model's chat template does not show the final message as it is",
            param="continue_final_message",
        )

    return prompt


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[LoopControlExtension, _GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "dict": _restricted_dict,
        "namespace": _RestrictedNamespace,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    return environment


def _restricted_dict(*args: Any, **values: Any) -> dict[Any, Any]:  # noqa: ANN401 - as `dict`.
    result = dict(*args, **values)
    for name in result:
        _refuse_private(name)

    return result


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the name {name!r} is private")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which no model was trained on.
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
    return datetime.now().strftime(format)


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Rebuild a value from plain JSON types, so that a template can reach no other object."""
    if value is None or isinstance(value, bool):
        return value

    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)

    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}

    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]

    raise BadRequestError(f"a {type(value).__name__} is not a JSON value", param="messages")


def _default_template(field: object) -> str | None:
    if isinstance(field, str):
        return field

    if isinstance(field, list):  # Named templates; the others are for special uses.
        named = {entry.get("name"): entry.get("template") for entry in field}
        return named.get("default")

    return None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")

        if isinstance(token, str):
            tokens[name] = token

    return tokens
