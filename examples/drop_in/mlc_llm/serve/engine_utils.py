"""Small functions of MLC LLM's engines."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from aiomlc.api.step.data import Data, TextData, TokenData, parse_inputs
from mlc_llm._not_supported import lacks


def random_uuid() -> str:
    """Return a new id."""
    return uuid.uuid4().hex


def convert_prompts_to_data(prompts: str | Sequence[int] | Sequence[Any]) -> list[Data]:
    """Return the parts of one prompt: texts and token ids."""
    is_list = isinstance(prompts, Sequence) and not isinstance(prompts, str)
    if is_list and not all(isinstance(part, int) for part in prompts):
        return [_part(part) for part in prompts]

    return list(parse_inputs(prompts))


def _part(part: Any) -> Data:
    if isinstance(part, str):
        return TextData(part)

    return part if isinstance(part, (TextData, TokenData)) else TokenData(part)


__getattr__ = lacks(
    __name__,
    "requests are checked and prepared by the engine",
    [
        "ErrorCleanupScope",
        "check_and_get_prompts_length",
        "check_unsupported_fields",
        "detect_embedding_model_type",
        "get_embedding_metadata",
        "get_generation_config",
        "get_unsupported_fields",
        "load_embedding_params",
        "openai_api_get_generation_config",
        "process_prompts",
    ],
)
