"""A model that reads images, without a tower."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np

from aiomlc import AsyncMLCEngine
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prompt import Prompt, PromptPiece
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.templates.prompt_template import PromptTemplate
from aiomlc.runtime.towers.piece_model import Encode
from aiomlc.testing import FakeCore, fake_model
from tests.unit.runtime.images.pictures import encoded, gradient

PLACEHOLDER = "<image>"
# Reads the parts of a content, as the templates of models that read images do.
PARTS_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
STRING_TEMPLATE = "{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}"


class FakeVision:
    """Puts a row for each column of an image in place of its placeholder."""

    placeholder = PLACEHOLDER

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[ImageData] = []

    async def prompt(self, text: str, items: Sequence[ImageData], encode: Encode) -> Prompt:
        """Return the prompt; the token of a row is that of a space."""
        self.texts.append(text)
        self.images += items
        if text.count(PLACEHOLDER) != len(items):
            raise BadRequestError("messages: other images than placeholders", param="messages")

        pieces = []
        for image in items:
            begin = text.index(PLACEHOLDER)
            text = text.replace(PLACEHOLDER, " " * image.width, 1)
            rows = np.zeros((image.width, 4), np.float32)
            pieces.append(PromptPiece(begin, image.digest, rows))
        return Prompt(await encode(text), pieces)


def vision_model(core: FakeCore, template: PromptTemplate) -> LoadedModel:
    """Return a model that reads images."""
    model = fake_model(core)
    return dataclasses.replace(model, chat_template=template, vision=FakeVision())


@asynccontextmanager
async def serve_images(
    core: FakeCore, template: PromptTemplate, config: EngineConfig | None = None
) -> AsyncIterator[tuple[AsyncMLCEngine, FakeVision]]:
    """Open an engine of a model that reads images."""
    model = vision_model(core, template)

    async def load(*args: object, **options: object) -> LoadedModel:
        return model

    async with AsyncMLCEngine(loader=load, engine_config=config) as engine:
        assert isinstance(model.vision, FakeVision)
        yield engine, model.vision


def image_url(width: int = 5) -> str:
    """Return a `data:` URL of a picture."""
    data = encoded(gradient(width, 3), "PNG")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def text_part(text: str) -> dict[str, object]:
    """Return a text part."""
    return {"type": "text", "text": text}


def image_part(width: int = 5, **fields: str) -> dict[str, object]:
    """Return an image part."""
    return {"type": "image_url", "image_url": {"url": image_url(width), **fields}}
