"""A model whose prompt has a recording, without a tower."""

from __future__ import annotations

__all__ = ("ASR_PLACEHOLDER", "FakeAudio", "audio_model", "open_audio_engine")

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.runtime.audio.recording import Recording
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.towers.piece_model import Encode
from aiomlc.testing import FakeCore, fake_model

ASR_PLACEHOLDER = "<audio>"
_ROWS_PER_SECOND = 4
_RATE = 16_000
_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'audio' %}<audio>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


class FakeAudio:
    """Puts rows in place of each placeholder, four per second."""

    placeholder = ASR_PLACEHOLDER

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.seconds: list[float] = []

    async def prompt(self, text: str, items: Sequence[Recording], encode: Encode) -> Prompt:
        """Return the prompt; the token of a row is that of a space."""
        self.texts.append(text)
        pieces = []
        for item in items:
            seconds = len(item.samples) / _RATE
            self.seconds.append(seconds)
            count = max(1, int(_ROWS_PER_SECOND * seconds))
            begin = text.index(ASR_PLACEHOLDER)
            text = text.replace(ASR_PLACEHOLDER, " " * count, 1)
            pieces.append(PromptPiece(begin, item.digest, np.zeros((count, 4), np.float32)))
        return Prompt(await encode(text), pieces)


def audio_model(core: FakeCore, **fields: Any) -> LoadedModel:  # noqa: ANN401
    """Return a model that reads audio."""
    return dataclasses.replace(
        fake_model(core),
        chat_template=ChatTemplate(_TEMPLATE),
        audio=FakeAudio(),
        audio_rows_per_second=_ROWS_PER_SECOND,
        **fields,
    )


def open_audio_engine(model: LoadedModel, **config: object) -> AsyncMLCEngine:
    """Return an engine of the model."""

    async def load(*args: object, **options: object) -> LoadedModel:
        return model

    return AsyncMLCEngine(loader=load, engine_config=EngineConfig(**config))  # type: ignore[arg-type]
