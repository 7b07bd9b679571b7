"""Models without files, whose tokens are bytes."""

from __future__ import annotations

__all__ = ("echo_model", "fake_model")

from dataclasses import replace

import tokenizers
import tokenizers.decoders
import tokenizers.models
import tokenizers.pre_tokenizers

from aiomlc.config import ECHO
from aiomlc.runtime.engine.core_protocol import Core
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.mock.core import FakeCore
from aiomlc.runtime.output_formats.tool_format import find_tool_format
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

_CHATML = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def fake_model(core: Core, *, context_window: int = 1024, model_name: str = "fake") -> LoadedModel:
    """Return a loaded model with this core, a ChatML template and Hermes' tool-call format."""
    return LoadedModel(
        core=core,
        tokenizer=_byte_tokenizer(),
        chat_template=ChatTemplate(_CHATML),
        model_name=model_name,
        context_window=context_window,
        vocab_size=256,
        tool_format=find_tool_format(_CHATML),
    )


def echo_model() -> LoadedModel:
    """Return the model `mock://echo`, whose reply to every prompt is the prompt itself."""
    model = fake_model(FakeCore(_byte_tokenizer().decode), model_name=ECHO)
    return replace(model, is_echo=True)


def _byte_tokenizer() -> Tokenizer:
    # GPT-2's byte-level alphabet: a printable byte is its own character; the remaining bytes are
    # the characters from 256 on, in order.
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    substitutes = iter(sorted(character for character in alphabet if ord(character) > 255))
    vocabulary = {
        (chr(byte) if chr(byte) in alphabet else next(substitutes)): byte for byte in range(256)
    }
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(backend)
