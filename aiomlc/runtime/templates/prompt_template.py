"""What turns messages into a prompt, of whichever kind, and where a model's own is found."""

from __future__ import annotations

__all__ = ("PromptTemplate", "load_prompt_template", "template_stop_ids")

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.templates.registry import get_conversation_template
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_CONFIG = "mlc-chat-config.json"


class PromptTemplate(Protocol):
    """A `ChatTemplate` or a `Conversation`. Thread-safe."""

    @property
    def source(self) -> str:
        """Its text, in which the forms of calls and thoughts are looked for."""

    @property
    def system_prefix_token_ids(self) -> tuple[int, ...] | None:
        """What comes before the tokens of the prompt."""

    @property
    def stop_str(self) -> tuple[str, ...]:
        """Texts that end an answer."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer, besides the model's own."""

    def takes(self, name: str) -> bool:
        """Whether the template knows a variable."""

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


def load_prompt_template(directory: Path, vocab_size: int) -> PromptTemplate | None:
    """The template of a model directory; None if it has none.

    It is the Jinja template, else the `conv_template` of `mlc-chat-config.json`: an object, or
    the name of a registered one.

    Raises:
        ModelLoadError: a file is unreadable, or the template is not valid or not known.
    """
    template = ChatTemplate.load(directory)
    if template is not None:
        return template

    path = directory / _CONFIG
    if not path.is_file():
        return None

    conversation = _conversation(path)
    for token_id in (conversation and conversation.system_prefix_token_ids) or ():
        if token_id >= vocab_size:
            field = "conv_template.system_prefix_token_ids"
            raise ModelLoadError(
                f"{path}: {field} has token {token_id}, the model has {vocab_size} tokens",
                path=path,
                field=field,
            )

    return conversation


def template_stop_ids(template: PromptTemplate | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens that end an answer of a chat, besides the model's own.

    The stop strings that are special tokens are among them: special tokens are no text, in which
    a stop string could be found.
    """
    if template is None:
        return ()

    of_strings = (tokenizer.special_id(text) for text in template.stop_str)
    ids = {*template.stop_token_ids, *(found for found in of_strings if found is not None)}
    return tuple(sorted(ids))


def _conversation(path: Path) -> Conversation | None:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}", path=path) from error

    value = config.get("conv_template") if isinstance(config, dict) else None
    if value is None:
        return None

    if isinstance(value, str):
        return get_conversation_template(value, path=path)

    if not isinstance(value, dict):
        raise ModelLoadError(
            f"{path}: conv_template is neither an object nor a name",
            path=path,
            field="conv_template",
        )

    return Conversation.from_json_dict(value, path=path)
