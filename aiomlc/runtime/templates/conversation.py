"""MLC's conversation templates: a prompt's parts as JSON, put together without a language."""

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
from aiomlc.runtime.output_formats.tool_history import write_tool_calls
from aiomlc.runtime.templates.tool_prompt import FUNCTIONS, ToolPromptFormat

_SYSTEM = "{system_message}"
_END_OF_THOUGHTS = "</think>"
_logger = logging.getLogger("aiomlc")
_ROLE_TEMPLATES = {
    "user": "{user_message}",
    "assistant": "{assistant_message}",
    "tool": "{tool_message}",
}

_TokenId = Annotated[int, Field(strict=True, ge=0)]
# Part of a prompt; None is a place of the functions.
_Piece = str | None


def _joined_text(content: object) -> object:
    if not isinstance(content, list | tuple):
        return content

    return "".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise ValueError("a content part that is no text is not supported")

    if not isinstance(text := part.get("text"), str):
        raise ValueError("a text part has no text")

    return text


_Content = Annotated[StrictStr | None, BeforeValidator(_joined_text)]


@final
class Conversation(BaseModel):
    """How messages become a prompt, in the form of MLC's `conv_template`. Immutable.

    A prompt is the system template, then for each message its role, `role_content_sep`, its
    content within the role's template, and a separator; then the assistant's role and
    `role_empty_sep`, after which the answer begins.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr | None = None
    system_template: StrictStr = _SYSTEM
    system_message: StrictStr = ""  #: Where a chat has none of its own.
    system_prefix_token_ids: tuple[_TokenId, ...] | None = None  #: Before the prompt.
    add_role_after_system_message: StrictBool = True  #: False: the first message has no role.
    roles: dict[StrictStr, StrictStr]  #: What opens a message, by `user`, `assistant`, `tool`.
    role_templates: Annotated[dict[StrictStr, StrictStr], Field(validate_default=True)] = {}
    #: Role and content, before those of every chat. None as content opens an answer.
    messages: tuple[tuple[StrictStr, _Content], ...] = ()
    seps: tuple[StrictStr, ...]  #: After every message; of two the second is the assistant's.
    role_content_sep: StrictStr = ""
    role_empty_sep: StrictStr = ""
    stop_str: tuple[Annotated[str, Field(strict=True, min_length=1)], ...] = ()
    stop_token_ids: tuple[_TokenId, ...] = ()
    strip_reasoning_in_history: StrictBool = False  #: Answers before the last question only.
    function_string: StrictStr = ""  #: Where a chat offers no tools.
    use_function_calling: StrictBool = False  #: State of MLC's; kept, and of no effect.
    tool_prompt_format: ToolPromptFormat | None = (
        None  #: Ours; None is a JSON list of the functions.
    )
    #: Ours: where there is nothing to say in it, `system_template` is left out.
    bare_without_system: StrictBool | None = None

    @field_validator("role_templates")
    @classmethod
    def _with_defaults(cls, templates: dict[str, str]) -> dict[str, str]:
        templates = {**_ROLE_TEMPLATES, **templates}
        for role, template in templates.items():
            if _placeholder(role) not in template:
                raise ValueError(f"the template of {role!r} has no {_placeholder(role)}")

        return templates

    @field_validator("seps")
    @classmethod
    def _one_or_two(cls, seps: tuple[str, ...]) -> tuple[str, ...]:
        if len(seps) not in (1, 2):
            raise ValueError("seps should have size 1 or 2.")

        return seps

    @field_validator("roles")
    @classmethod
    def _with_both(cls, roles: dict[str, str]) -> dict[str, str]:
        for role in ("user", "assistant"):
            if role not in roles:
                raise ValueError(f"there is no role {role!r}")

        return roles

    @model_validator(mode="after")
    def _knows_its_roles(self) -> Self:
        for role, _ in self.messages:
            if role not in self.roles:
                raise ValueError(f"messages have the role {role!r}, which roles does not")

        return self

    @classmethod
    def from_json_dict(
        cls,
        fields: Mapping[str, Any],
        *,
        path: str | PathLike[str] | None = None,
        field: str = "conv_template",
    ) -> Self:
        """Validate the JSON object that `to_json_dict` makes; `path` and `field` say where it is.

        Fields that we do not know are logged and ignored, as upstream ignores them.

        Raises:
            ModelLoadError: a field is missing or wrong; the error names it.
        """
        unknown = [name for name in fields if name not in cls.model_fields]
        if unknown:
            where = field if path is None else f"{path}: {field}"
            _logger.warning("%s: unknown fields are ignored: %s", where, ", ".join(unknown))

        try:
            return cls.model_validate(
                {name: value for name, value in fields.items() if name not in unknown}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join((field, *map(str, first["loc"])))
            reason = first["msg"].removeprefix("Value error, ")
            raise ModelLoadError(
                f"{'' if path is None else f'{path}: '}{where}: {reason}", path=path, field=where
            ) from error

    def to_json_dict(self) -> dict[str, Any]:
        """The JSON object of this template; what is None is left out."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def source(self) -> str:
        """The texts of the template, in which the forms of calls and thoughts are looked for."""
        marks = _END_OF_THOUGHTS if self.strip_reasoning_in_history else ""
        form = self.tool_prompt_format or ToolPromptFormat()
        texts = (self.system_template, *self.roles.values(), *self.role_templates.values())
        told = (form.template, form.signature)
        return "\n".join((*texts, *told, self.role_empty_sep, marks))

    def takes(self, name: str) -> bool:
        """Whether the template knows a variable: this kind has none."""
        return False

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: object,
    ) -> str:
        """The prompt of `messages`, without `system_prefix_token_ids`.

        One to be continued ends with the last message's content. A system message replaces the
        template's own and is the first.

        Raises:
            BadRequestError: the template has no place for a message, its calls, tools or variables.
        """
        if variables:
            raise BadRequestError(
                f"the model's conversation template takes no variables: {sorted(variables)}",
                param="chat_template_kwargs",
            )

        system, turns = self._split(messages)
        template = self.system_template
        if self.bare_without_system and not system and not (tools and FUNCTIONS in template):
            template = ""

        pieces = _filled(template, _SYSTEM, system)
        without_role = pieces != [""] and not self.add_role_after_system_message
        turns = [*self.messages, *turns]
        for position, (role, content) in enumerate(turns):
            is_cut = continue_final_message and position == len(turns) - 1
            pieces += self._turn(role, content, position > 0 or not without_role, is_cut)

        if add_generation_prompt and not continue_final_message:
            pieces += self._turn("assistant", None, has_role=True)

        return self._with_functions(pieces, tools)

    def _split(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[str, list[tuple[str, str | None]]]:
        """The system message, and the role and content of the others."""
        system = self.system_message
        if messages and _role(messages[0]) == "system":
            system = messages[0]["content"] or ""
            messages = messages[1:]
            if system and _SYSTEM not in self.system_template:
                raise _refused("has no place for a system message")

        questions = [n for n, message in enumerate(messages) if message["role"] == "user"]
        last_question = questions[-1] if questions else 0
        return system, [
            (_role(message), self._content(message, is_past=position < last_question))
            for position, message in enumerate(messages)
        ]

    def _content(self, message: Mapping[str, Any], *, is_past: bool) -> str:
        content: str = message.get("content") or ""
        if message["role"] != "assistant":
            return content

        if is_past and self.strip_reasoning_in_history:
            _, mark, answer = content.rpartition(_END_OF_THOUGHTS)
            content = answer.lstrip("\n") if mark else content

        calls = message.get("tool_calls")
        if not calls:
            return content

        tool_format = find_tool_format(self.source)
        if tool_format is None:
            raise _refused("shows no form of tool calls that we know")

        written = write_tool_calls(tool_format, calls)
        return f"{content}\n{written}" if content else written

    def _turn(
        self, role: str, content: str | None, has_role: bool, is_cut: bool = False
    ) -> list[_Piece]:
        if role not in self.roles:
            raise _refused(f"has no role {role!r} after the beginning")

        if content is None:
            return _filled(self.roles[role] + self.role_empty_sep)

        opening = self.roles[role] + self.role_content_sep if has_role else ""
        placeholder = _placeholder(role)
        template = self.role_templates.get(role, placeholder)
        if is_cut:
            return [*_filled(opening + template.partition(placeholder)[0]), content]

        separator = self.seps[-1] if role == "assistant" else self.seps[0]
        return [*_filled(opening), *_filled(template, placeholder, content), separator]

    def _with_functions(
        self, pieces: Sequence[_Piece], tools: Sequence[Mapping[str, Any]] | None
    ) -> str:
        """The prompt, whose last place of functions has them and whose others are empty."""
        places = [position for position, piece in enumerate(pieces) if piece is None]
        functions = self.function_string
        if tools:
            if not places:
                raise _refused("has no place for tools", param="tools")

            functions = (self.tool_prompt_format or ToolPromptFormat()).render(tools)

        filled = [piece or "" for piece in pieces]
        if places:
            filled[places[-1]] = functions

        return "".join(filled)


def _placeholder(role: str) -> str:
    return f"{{{role}_message}}"


def _role(message: Mapping[str, Any]) -> str:
    role: str = message["role"]
    return "system" if role == "developer" else role


def _filled(template: str, placeholder: str = "", content: str = "") -> list[_Piece]:
    """A template with its content; what a content says is never taken for a placeholder."""
    pieces: list[_Piece] = []
    for text in template.split(FUNCTIONS):
        pieces += [text.replace(placeholder, content) if placeholder else text, None]

    return pieces[:-1]


def _refused(reason: str, param: str = "messages") -> BadRequestError:
    return BadRequestError(f"the model's conversation template {reason}", param=param)
