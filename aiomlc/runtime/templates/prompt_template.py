"""The interface of both kinds of chat templates, and the lookup of a model's template."""

from __future__ import annotations

__all__ = ("PromptTemplate", "load_prompt_template", "template_stop_ids")

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.registry import get_conversation_template, is_customized
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.model_files import load_errors

_CONFIG = "mlc-chat-config.json"
_logger = logging.getLogger("aiomlc")


class PromptTemplate(Protocol):
    """A `ChatTemplate` or a `Conversation`. Thread-safe."""

    @property
    def source(self) -> str:
        """The text in which the tool-call and reasoning formats of the template are detected."""
        ...

    @property
    def system_prefix_token_ids(self) -> tuple[int, ...] | None:
        """Tokens before those of the prompt."""
        ...

    @property
    def stop_str(self) -> tuple[str, ...]:
        """Strings that end a completion."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion, in addition to the model's own."""
        ...

    def has_variable(self, name: str) -> bool:
        """Whether the template reads a variable of this name."""
        ...

    def for_chat(self, *, has_tools: bool) -> PromptTemplate:
        """Return the template of chats with or without tools."""
        ...

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

        Args:
            messages: The messages in OpenAI's format.
            tools: The offered tools in OpenAI's format.
            add_generation_prompt: Whether the prompt ends with the start of an assistant message.
            continue_final_message: Whether the prompt ends with the content of the last message.
            image_placeholder: The text that stands for an image in a prompt.
            **variables: Values for variables of the template.

        Raises:
            BadRequestError: If the template rejects the messages or fails.
        """
        ...


def load_prompt_template(files: ConfigFiles, vocab_size: int) -> PromptTemplate | None:
    """Return the chat template of a model directory, or None if it has none.

    It is a Jinja template, or the `conv_template` of `mlc-chat-config.json`, which is an object or
    the name of a registered template. If there are both, the `conv_template` is used only if
    the user has changed it, and the log gives the choice and its reason.

    Args:
        vocab_size: The exclusive upper bound of `system_prefix_token_ids`.

    Raises:
        ModelLoadError: If a file cannot be read, or the template is invalid or unknown.
    """
    template = ChatTemplate.load(files)
    path = files.path(_CONFIG)
    try:
        with load_errors(path):
            conversation = _load_conversation(files, path)
            _check_prefix(conversation, vocab_size, path)
    except ModelLoadError as error:
        if template is None:
            raise

        _logger.warning("the Jinja template is used, since the conv_template is invalid: %s", error)
        return template

    if template is None or conversation is None:
        return template or conversation

    return _choose(template, conversation, path)


def _choose(template: ChatTemplate, conversation: Conversation, path: Path) -> PromptTemplate:
    """Return the Jinja template unless the user has changed the `conv_template` beside it.

    `gen_config` of MLC LLM writes a `conv_template` into every directory, and copies the Jinja
    template of the model's authors beside it.
    """
    if is_customized(conversation):
        _logger.info(
            "%s: the conv_template %r is used and not the Jinja template, because it differs from "
            "MLC LLM's",
            path,
            conversation.name,
        )
        return conversation

    _logger.info(
        "%s: the Jinja template is used and not the conv_template %r, which is MLC LLM's own",
        path,
        conversation.name,
    )
    return template


def _check_prefix(conversation: Conversation | None, vocab_size: int, path: Path) -> None:
    for token_id in (conversation and conversation.system_prefix_token_ids) or ():
        if token_id >= vocab_size:
            field = "conv_template.system_prefix_token_ids"
            raise ModelLoadError(
                f"{path}: {field} contains token id {token_id}, which is not in [0, {vocab_size})",
                path=path,
                field=field,
            )


def template_stop_ids(template: PromptTemplate | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that end a chat completion, in addition to the model's own.

    These include the stop strings that are special tokens. Special tokens are not part of the
    text, so such a stop string could not be found there.
    """
    if template is None:
        return ()

    special_ids = map(tokenizer.special_token_id, template.stop_str)
    ids = {*template.stop_token_ids, *(each for each in special_ids if each is not None)}
    return tuple(sorted(ids))


def _load_conversation(files: ConfigFiles, path: Path) -> Conversation | None:
    config = files.object(_CONFIG) or {}
    value = config.get("conv_template")
    if value is None:
        return None

    if isinstance(value, str):
        return get_conversation_template(value, path=path)

    if not isinstance(value, dict):
        raise ModelLoadError(
            f"{path}: conv_template must be an object or the name of a template",
            path=path,
            field="conv_template",
        )

    return Conversation.from_json_dict(value, path=path)
