"""Conversation templates by name: the built-in ones and those that a program registers."""

from __future__ import annotations

__all__ = (
    "ConvTemplateRegistry",
    "builtin_conversations",
    "get_conversation_template",
    "is_customized",
    "register_conversation_template",
)

import difflib
import functools
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from os import PathLike
from typing import final

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.validation.arguments import check_flag, check_type

# The fields of `Conversation` that MLC LLM's schema does not have.
_EXTENSIONS = ("tool_prompt_format", "bare_without_system")
_registered: dict[str, Conversation] = {}  # By the program; these override the built-in ones.


@functools.cache
def builtin_conversations() -> Mapping[str, Conversation]:
    """Return the built-in conversation templates by name, from `conversations.json`."""
    templates = map(Conversation.model_validate, json.loads(_resource("conversations.json")))
    return {template.name or "": template for template in templates}


def register_conversation_template(conversation: Conversation, *, override: bool = False) -> None:
    """Register a template for models whose `conv_template` is the template's name.

    Raises:
        BadRequestError: If `conversation` is not a Conversation.
        ValueError: If it has no name, or the name is already registered and `override` is False.
    """
    check_type("conversation", conversation, Conversation, "a Conversation")
    check_flag("override", override)
    if not conversation.name:
        raise ValueError("the conversation template must have a name")

    if _find(conversation.name) is not None and not override:
        raise ValueError(
            f"the conversation template {conversation.name!r} is already registered; pass "
            "override=True to replace it"
        )

    _registered[conversation.name] = conversation


def get_conversation_template(
    name: str, *, path: str | PathLike[str] | None = None
) -> Conversation:
    """Return the template of that name.

    Raises:
        ModelLoadError: If the name is unknown; the message lists similar names.
    """
    if (conversation := _find(name)) is not None:
        return conversation

    names = sorted({*builtin_conversations(), *_registered})
    by_lower = {known.lower(): known for known in names}
    similar = [
        by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, cutoff=0.5)
    ]
    hint = f"similar: {', '.join(similar)}" if similar else f"known: {', '.join(names)}"
    raise ModelLoadError(
        f"{'' if path is None else f'{path}: '}conv_template: unknown conversation template "
        f"{name!r} ({hint})",
        path=path,
        field="conv_template",
    )


@final
class ConvTemplateRegistry:
    """The conversation templates by name, with MLC LLM's interface."""

    @staticmethod
    def register_conv_template(conv_template: Conversation, override: bool = False) -> None:
        """Register a template, as `register_conversation_template` does.

        Raises:
            BadRequestError: If `conv_template` is not a Conversation.
            ValueError: If it has no name, or the name is already registered and `override` is
                False.
        """
        register_conversation_template(conv_template, override=override)

    @staticmethod
    def get_conv_template(name: str) -> Conversation | None:
        """Return the template of that name; None if there is none."""
        return _find(name)


def is_customized(conversation: Conversation) -> bool:
    """Return whether a template is neither built in nor one that MLC LLM has ever registered.

    MLC LLM's `gen_config` writes its registered templates into model directories as objects.
    `mlc_conversations.json` has their digests, of all versions.
    """
    if conversation in builtin_conversations().values():
        return False

    return _digest(conversation) not in _mlc_digests()


def _digest(conversation: Conversation) -> str:
    fields = conversation.model_dump(mode="json", exclude_defaults=True, exclude={*_EXTENSIONS})
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def _mlc_digests() -> frozenset[str]:
    return frozenset(json.loads(_resource("mlc_conversations.json")))


def _resource(name: str) -> str:
    return resources.files("aiomlc.runtime.templates").joinpath(name).read_text("utf-8")


def _find(name: str) -> Conversation | None:
    return _registered.get(name) or builtin_conversations().get(name)
