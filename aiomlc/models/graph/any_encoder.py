"""The graphs that run without the core."""

from __future__ import annotations

__all__ = ("AnyEncoder",)

from aiomlc.models.graph.audio import AudioTower
from aiomlc.models.graph.block_encoder import BlockEncoder
from aiomlc.models.graph.encoder import DisentangledEncoder, Encoder
from aiomlc.models.graph.speech import SpeechModel
from aiomlc.models.graph.vision import VisionTower

AnyEncoder = Encoder | DisentangledEncoder | BlockEncoder | VisionTower | AudioTower | SpeechModel
