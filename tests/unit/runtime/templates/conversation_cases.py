"""Messages, tools and conversation templates for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiomlc.runtime.templates.conversation import Conversation

SYSTEM = {"role": "system", "content": "Be brief."}
CHAT: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
)
CHATML: dict[str, Any] = {
    "system_template": "<|im_start|>system\n{system_message}<|im_end|>\n",
    "roles": {"user": "<|im_start|>user", "assistant": "<|im_start|>assistant"},
    "seps": ["<|im_end|>\n"],
    "role_content_sep": "\n",
    "role_empty_sep": "\n",
}
#: The prompt of `[SYSTEM, *CHAT]` with the template `CHATML`.
CHATML_PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
    "<|im_start|>assistant\n"
)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rom"}'},
}


def make_conversation(**fields: Any) -> Conversation:  # noqa: ANN401
    """Return the template `CHATML` with other fields."""
    return Conversation.from_json_dict({**CHATML, **fields})


def write_config(directory: Path, conv_template: object) -> Path:
    """Write an `mlc-chat-config.json` with this `conv_template`; return its path."""
    path = directory / "mlc-chat-config.json"
    path.write_text(json.dumps({"conv_template": conv_template}))
    return path
