"""A model that embeds texts and images, without weights."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine
from aiomlc.config import EngineConfig
from aiomlc.runtime.embedding.embedder import Embedder
from aiomlc.runtime.embedding.image_embedder import ImageEmbedder
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.towers.tower_batcher import TowerBatcher
from aiomlc.runtime.vision.image_processor import ProcessedImage
from aiomlc.runtime.vision.image_reader import ImageReader
from aiomlc.testing import FakeEncoder, fake_encoder

NUM_TOKENS = 4  #: Of an image.


class SizeProcessor:
    """The pixels of an image are its width and height."""

    def process(self, image: ImageData) -> ProcessedImage:
        """Return the inputs of the tower."""
        patches = np.array([[image.width, image.height]], np.float32)
        return ProcessedImage({"patches": patches, "order": np.zeros((1, 1), np.int32)}, "", 1)


class SizeTower:
    """The vector of an image is `[width, height, -1]`; waits until it may run."""

    def __init__(self) -> None:
        self.may_run = threading.Event()
        self.may_run.set()
        self.has_begun = threading.Event()

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the vectors."""
        self.has_begun.set()
        assert self.may_run.wait(10)
        sizes = inputs["patches"]
        return np.concatenate([sizes, np.full((len(sizes), 1), -1, np.float32)], axis=1)


@asynccontextmanager
async def embed_images(
    tower: SizeTower | None = None, config: EngineConfig | None = None
) -> AsyncIterator[AsyncMLCEngine]:
    """Open an engine of a model that embeds texts (`FakeEncoder`) and images (`SizeTower`)."""
    batcher = TowerBatcher(ImageReader(tower or SizeTower(), SizeProcessor()))
    embedder = fake_encoder(FakeEncoder()).model
    assert isinstance(embedder, Embedder)
    model = dataclasses.replace(embedder, images=ImageEmbedder(batcher, NUM_TOKENS))

    async def load(*args: object, **options: object) -> LoadedEncoder:
        return LoadedEncoder(model)

    async with AsyncMLCEngine(loader=load, engine_config=config) as engine:
        yield engine
