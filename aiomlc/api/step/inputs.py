"""The prompts of `SyncMLCEngine`, made of its inputs."""

from __future__ import annotations

__all__ = ("InputEncoder",)

from collections.abc import Sequence
from typing import final

from anyio.from_thread import start_blocking_portal

from aiomlc.api.step.data import Data, TextData, TokenData
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.images.image_data import ImageData
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.tokenization.prompt_encoder import PromptEncoder
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_token_ids


@final
class InputEncoder:
    """Encodes texts, token ids and images to one prompt.

    Args:
        model: The model of the engine.
        splits: Whether the names of special tokens in texts are plain text.
    """

    def __init__(self, model: LoadedModel, *, splits: bool) -> None:
        self._model = model
        self._encoder = PromptEncoder(model.tokenizer, model.context_window)
        self._method = Tokenizer.encode_split if splits else Tokenizer.encode

    def encode(self, inputs: Sequence[Data]) -> Prompt:
        """Return the prompt.

        Raises:
            BadRequestError: If a token id is not in the vocabulary, the model does not read images,
                or there are token ids beside images.
            PromptTooLongError: If a text cannot fit the context window because of its size.
        """
        images = [data for data in inputs if isinstance(data, ImageData)]
        if images:
            return self._encode_images(inputs, images)

        prompt_ids: list[int] = []
        for data in inputs:
            if isinstance(data, TextData):
                prompt_ids += self._encode_text(data.text)
            elif isinstance(data, TokenData):
                check_token_ids("prompt", data.token_ids, self._model.vocab_size)
                prompt_ids += data.token_ids

        # A prompt that begins with token ids is complete as it is.
        is_text = isinstance(inputs[0], TextData)
        return Prompt(self._model.as_text(prompt_ids) if is_text else prompt_ids)

    def _encode_text(self, text: str) -> list[int]:
        return self._encoder.encode(text, method=self._method)

    def _encode_images(self, inputs: Sequence[Data], images: Sequence[ImageData]) -> Prompt:
        vision = self._model.require_vision("inputs")
        texts: list[str] = []
        for data in inputs:
            if isinstance(data, TokenData):
                raise BadRequestError(
                    "inputs: TokenData beside ImageData is not supported; pass TextData",
                    param="inputs",
                )

            texts.append(data.text if isinstance(data, TextData) else vision.placeholder)

        async def encode(text: str) -> list[int]:
            return self._model.as_text(self._encode_text(text))

        with start_blocking_portal(name="aiomlc images") as portal:
            return portal.call(vision.prompt, "".join(texts), images, encode)
