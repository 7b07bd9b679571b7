"""The fields of a request, before the library validates them."""

from __future__ import annotations

__all__ = ("prepare_fields",)

from typing import Any

from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.options import ServerOptions

# Hints to a hosted service, which cannot change an answer here.
_HINTS = frozenset(
    {
        "client_metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
    }
)
# The fields with the prompt.
_PROMPTS = (
    "messages",
    "prompt",
    "input",
    "suffix",
    "instructions",
    "tools",
    "query",
    "documents",
    "text_1",
    "text_2",
)
_CHOICES = ("n", "best_of")


def prepare_fields(fields: dict[str, Any], model: str, options: ServerOptions) -> dict[str, Any]:
    """Return the fields of a request for the library, with the name of the model.

    Raises:
        HTTPError: If a limit of the server is exceeded, or a field is only for debugging.
    """
    for name in ("extra_body", "logits_processors"):
        if name in fields:
            raise HTTPError(400, f"{name}: is not a field of the HTTP API", param=name)

    # MLC LLM's clients send an empty one, which asks for nothing.
    if fields.get("debug_config") not in (None, {}) and not options.enable_debug:
        raise HTTPError(
            400,
            "debug_config: is disabled; the operator can enable it by --enable-debug",
            param="debug_config",
        )

    _check_choices(fields, options)
    _check_length(fields, options)
    kept = {name: value for name, value in fields.items() if name not in _HINTS}
    if kept.get("model") is None:
        kept["model"] = model

    return kept


def _check_choices(fields: dict[str, Any], options: ServerOptions) -> None:
    prompt = fields.get("prompt")
    # A list of integers is one prompt of token ids.
    num_prompts = 1
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        num_prompts = len(prompt)
    choices = {name: value for name in _CHOICES if isinstance(value := fields.get(name), int)}
    name, value = max(choices.items(), key=lambda item: item[1], default=("n", 1))
    if value * num_prompts <= options.max_choices:
        return

    if num_prompts > options.max_choices:
        raise HTTPError(
            400,
            f"prompt: must have at most {options.max_choices} prompts, got {num_prompts}",
            param="prompt",
        )

    raise HTTPError(
        400,
        f"{name}: must be <= {options.max_choices} for all prompts of a request together, "
        f"got {value} for {num_prompts} of them",
        param=name,
    )


def _check_length(fields: dict[str, Any], options: ServerOptions) -> None:
    limit = options.max_prompt_length
    if limit is None:
        return

    lengths = {name: _length(fields.get(name)) for name in _PROMPTS}
    total = sum(lengths.values())
    if total > limit:
        longest = max(lengths, key=lambda name: lengths[name])
        names = ", ".join(name for name, length in lengths.items() if length)
        raise HTTPError(
            400,
            f"{names}: must have at most {limit} characters or token ids in total, got {total}",
            param=longest,
            code="context_length_exceeded",
        )


def _length(value: object) -> int:
    """Return the number of characters of all strings in a JSON value, and of its numbers.

    Images are no text.
    """
    length = 0
    stack = [value]
    while stack:
        inner: Any = stack.pop()
        if isinstance(inner, str):
            length += len(inner)
        elif isinstance(inner, dict):
            stack.extend(each for name, each in inner.items() if name != "image_url")
        elif isinstance(inner, list):
            stack.extend(inner)
        elif inner is not None:
            length += 1

    return length
