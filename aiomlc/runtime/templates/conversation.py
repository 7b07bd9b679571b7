"""MLC LLM's conversation templates, which define the parts of a prompt as data."""

from __future__ import annotations

__all__ = ("Conversation",)

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated, Any, ClassVar, Self, final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.output_formats.tool_format import find_tool_format
from aiomlc.runtime.output_formats.tool_history import render_tool_calls
from aiomlc.runtime.templates.message_forms import content_text, image_text
from aiomlc.runtime.templates.placeholders import MessagePlaceholders
from aiomlc.runtime.templates.tool_prompt import FUNCTIONS, ToolPromptFormat
from aiomlc.validation.error_messages import plain_message

_SYSTEM = MessagePlaceholders.SYSTEM.value
_END_OF_REASONING = "</think>"
_logger = logging.getLogger("aiomlc")
_ROLE_TEMPLATES = {
    "user": MessagePlaceholders.USER.value,
    "assistant": MessagePlaceholders.ASSISTANT.value,
    "tool": MessagePlaceholders.TOOL.value,
}

_TokenId = Annotated[int, Field(strict=True, ge=0)]
# A segment of a prompt; None stands for `{function_string}`.
_Segment = str | None


def _join_text_parts(content: object) -> object:
    if not isinstance(content, list | tuple):
        return content

    return "".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise ValueError("only content parts of type 'text' are supported")

    if not isinstance(text := part.get("text"), str):
        raise ValueError("the 'text' of a content part must be a string")

    return text


def _drop_empty(strings: object) -> object:
    return [s for s in strings if s != ""] if isinstance(strings, list | tuple) else strings


_Content = Annotated[StrictStr | None, BeforeValidator(_join_text_parts)]


@final
class Conversation(BaseModel):
    """A chat template in the schema of MLC LLM's `conv_template`. Immutable.

    A prompt starts with the system template. For each message follow the text of its role,
    `role_content_sep`, its content within the role's template, and a separator. The prompt ends
    with the text of the assistant's role and `role_empty_sep`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr | None = None
    system_template: StrictStr = _SYSTEM
    system_message: StrictStr = ""  #: The default system message.
    system_prefix_token_ids: tuple[_TokenId, ...] | None = None  #: Tokens before the prompt.
    #: Whether the first message after the system message starts with the text of its role.
    add_role_after_system_message: StrictBool = True
    roles: dict[StrictStr, StrictStr]  #: The text before a message, by `user`, `assistant`, `tool`.
    role_templates: Annotated[dict[StrictStr, StrictStr], Field(validate_default=True)] = {}
    #: Role and content of messages before those of every request. If the content is None,
    #: `role_empty_sep` follows the role.
    messages: tuple[tuple[StrictStr, _Content], ...] = ()
    #: The separators after messages: one for all, or the second for those of the assistant.
    seps: tuple[StrictStr, ...]
    role_content_sep: StrictStr = ""
    role_empty_sep: StrictStr = ""
    #: Empty strings, which MLC LLM's `stablelm` has, are dropped.
    stop_str: Annotated[
        tuple[Annotated[str, Field(strict=True, min_length=1)], ...],
        BeforeValidator(_drop_empty),
    ] = ()
    stop_token_ids: tuple[_TokenId, ...] = ()
    #: Whether to omit the reasoning of assistant messages before the last user message.
    strip_reasoning_in_history: StrictBool = False
    function_string: StrictStr = ""  #: Replaces `{function_string}` if a request has no tools.
    use_function_calling: StrictBool = False  #: Ignored; runtime state of MLC LLM.
    #: The text that describes tools; None for a JSON list. An extension of MLC LLM's schema.
    tool_prompt_format: ToolPromptFormat | None = None
    #: Whether to omit `system_template` if there is neither a system message nor a description of
    #: tools in it. An extension of MLC LLM's schema.
    bare_without_system: StrictBool | None = None

    @field_validator("role_templates")
    @classmethod
    def _add_default_role_templates(cls, templates: dict[str, str]) -> dict[str, str]:
        templates = {**_ROLE_TEMPLATES, **templates}
        for role, template in templates.items():
            if _placeholder(role) not in template:
                raise ValueError(f"the template of role {role!r} must contain {_placeholder(role)}")

        return templates

    @field_validator("seps")
    @classmethod
    def _check_seps(cls, seps: tuple[str, ...]) -> tuple[str, ...]:
        if len(seps) not in (1, 2):
            raise ValueError("seps should have size 1 or 2.")

        return seps

    @field_validator("roles")
    @classmethod
    def _check_roles(cls, roles: dict[str, str]) -> dict[str, str]:
        for role in ("user", "assistant"):
            if role not in roles:
                raise ValueError(f"roles must contain {role!r}")

        return roles

    @model_validator(mode="after")
    def _check_message_roles(self) -> Self:
        for role, _ in self.messages:
            if role not in self.roles:
                raise ValueError(f"messages contain the role {role!r}, which is missing in roles")

        return self

    @classmethod
    def from_json_dict(
        cls,
        json_dict: Mapping[str, Any],
        *,
        path: str | PathLike[str] | None = None,
        field: str = "conv_template",
    ) -> Self:
        """Validate a JSON object in MLC LLM's schema, such as one made by `to_json_dict`.

        Unknown fields are ignored, as in MLC LLM, but logged.

        Args:
            json_dict: The JSON object.
            path: The file that contains the object, for errors and the log.
            field: The field that contains the object, for errors and the log.

        Raises:
            ModelLoadError: If a field is missing or invalid; the error names it.
        """
        unknown = [name for name in json_dict if name not in cls.model_fields]
        if unknown:
            where = field if path is None else f"{path}: {field}"
            _logger.warning("%s: ignoring unknown fields: %s", where, ", ".join(unknown))

        try:
            return cls.model_validate(
                {name: value for name, value in json_dict.items() if name not in unknown}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join((field, *map(str, first["loc"])))
            reason = plain_message(first["msg"])
            raise ModelLoadError(
                f"{'' if path is None else f'{path}: '}{where}: {reason}", path=path, field=where
            ) from None

    def to_json_dict(self) -> dict[str, Any]:
        """Return the JSON object of this template, without fields that are None."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def source(self) -> str:
        """The text in which the tool-call and reasoning formats of the template are detected."""
        tool_prompt = self.tool_prompt_format or ToolPromptFormat()
        return "\n".join(
            (
                self.system_template,
                *self.roles.values(),
                *self.role_templates.values(),
                tool_prompt.template,
                tool_prompt.signature,
                self.role_empty_sep,
                _END_OF_REASONING if self.strip_reasoning_in_history else "",
            )
        )

    def has_variable(self, name: str) -> bool:
        """Return False: a conversation template has no variables."""
        return False

    def for_chat(self, *, has_tools: bool) -> Self:
        """Return this template, which is that of all chats."""
        return self

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
        """Return the prompt of a chat, without `system_prefix_token_ids`.

        Args:
            messages: The messages in OpenAI's format. A system message must be the first; it
                replaces the template's default.
            tools: The offered tools in OpenAI's format.
            add_generation_prompt: Whether the prompt ends with the start of an assistant message.
            continue_final_message: Whether the prompt ends with the content of the last message.
            image_placeholder: The text that stands for an image; a line break follows it.
            **variables: Not supported by conversation templates.

        Raises:
            BadRequestError: If the template does not support a message, a tool call, tools or
                variables.
        """
        if variables:
            raise BadRequestError(
                f"the model's conversation template has no variables, got {sorted(variables)}",
                param="chat_template_kwargs",
            )

        system, turns = self._split_system(messages, image_text(image_placeholder))
        template = self.system_template
        if self.bare_without_system and not system and not (tools and FUNCTIONS in template):
            template = ""

        segments = _fill(template, _SYSTEM, system)
        omit_first_role = segments != [""] and not self.add_role_after_system_message
        turns = [*self.messages, *turns]
        for position, (role, content) in enumerate(turns):
            is_continued = continue_final_message and position == len(turns) - 1
            has_role = position > 0 or not omit_first_role
            segments += self._render_turn(role, content, has_role, is_continued)

        if add_generation_prompt and not continue_final_message:
            segments += self._render_turn("assistant", None, has_role=True)

        return self._insert_functions(segments, tools)

    def as_prompt(self, config: object = None) -> list[str]:
        """Return the prompt of `messages`, as MLC LLM's method does: a list of one string.

        A message without content is the start of an answer.

        Args:
            config: Ignored; MLC LLM needs the model's configuration for images.
        """
        return [self.render([], add_generation_prompt=False)]

    def _split_system(
        self, messages: Sequence[Mapping[str, Any]], image: str
    ) -> tuple[str, list[tuple[str, str | None]]]:
        """Return the system message, and the role and content of all other messages."""
        system = self.system_message
        if messages and _role(messages[0]) == "system":
            system = content_text(messages[0]["content"])
            messages = messages[1:]
            if system and _SYSTEM not in self.system_template:
                raise _unsupported("does not support a system message")

        user_positions = [n for n, message in enumerate(messages) if message["role"] == "user"]
        last_user = user_positions[-1] if user_positions else 0
        return system, [
            (_role(message), self._render_content(message, image, is_history=position < last_user))
            for position, message in enumerate(messages)
        ]

    def _render_content(self, message: Mapping[str, Any], image: str, *, is_history: bool) -> str:
        content = content_text(message.get("content"), image)
        if message["role"] != "assistant":
            return content

        if is_history and self.strip_reasoning_in_history:
            _, marker, answer = content.rpartition(_END_OF_REASONING)
            content = answer.lstrip("\n") if marker else content

        calls = message.get("tool_calls")
        if not calls:
            return content

        tool_format = find_tool_format(self.source)
        if tool_format is None:
            raise _unsupported("has no known tool-call format")

        rendered_calls = render_tool_calls(tool_format, calls)
        return f"{content}\n{rendered_calls}" if content else rendered_calls

    def _render_turn(
        self, role: str, content: str | None, has_role: bool, is_continued: bool = False
    ) -> list[_Segment]:
        if role not in self.roles:
            roles = ", ".join(self.roles)
            raise _unsupported(
                f"does not support the role {role!r}; roles after the system message: {roles}"
            )

        if content is None:
            return _fill(self.roles[role] + self.role_empty_sep)

        start = self.roles[role] + self.role_content_sep if has_role else ""
        placeholder = _placeholder(role)
        template = self.role_templates.get(role, placeholder)
        if is_continued:
            return [*_fill(start + template.partition(placeholder)[0]), content]

        separator = self.seps[-1] if role == "assistant" else self.seps[0]
        return [*_fill(start), *_fill(template, placeholder, content), separator]

    def _insert_functions(
        self, segments: Sequence[_Segment], tools: Sequence[Mapping[str, Any]] | None
    ) -> str:
        """Join the segments, with the functions at the last `{function_string}` only."""
        positions = [position for position, segment in enumerate(segments) if segment is None]
        functions = self.function_string
        if tools:
            if not positions:
                raise _unsupported("does not support tools", param="tools")

            functions = (self.tool_prompt_format or ToolPromptFormat()).render(tools)

        texts = [segment or "" for segment in segments]
        if positions:
            texts[positions[-1]] = functions

        return "".join(texts)


def _placeholder(role: str) -> str:
    return f"{{{role}_message}}"


def _role(message: Mapping[str, Any]) -> str:
    role: str = message["role"]
    return "system" if role == "developer" else role


def _fill(template: str, placeholder: str = "", content: str = "") -> list[_Segment]:
    """Return the segments of a template with its content.

    The template is split first, so that `{function_string}` within the content stays text.
    """
    segments: list[_Segment] = []
    for text in template.split(FUNCTIONS):
        segments += [text.replace(placeholder, content) if placeholder else text, None]

    return segments[:-1]


def _unsupported(reason: str, param: str = "messages") -> BadRequestError:
    return BadRequestError(f"the model's conversation template {reason}", param=param)
