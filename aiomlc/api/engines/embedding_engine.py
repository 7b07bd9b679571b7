"""`AsyncEmbeddingEngine`, for programs written for MLC LLM's class of this name."""

from __future__ import annotations

__all__ = ("AsyncEmbeddingEngine",)

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

from anyio import to_thread

from aiomlc.api.engines.mlc_engine import MLCEngine
from aiomlc.api.session.loader import Loader, ModelPath
from aiomlc.devices import AUTO, Device, parse_device
from aiomlc.errors import BadRequestError
from aiomlc.runtime.embedding.pooling import Pooling
from aiomlc.validation.arguments import check_str, wrong_type

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer

_POOLINGS = ("mean", "cls", "last")


@final
class AsyncEmbeddingEngine:
    """An engine that embeds text with an encoder, for threads and for tasks of any event loop.

    The constructor opens the model and blocks until it is ready. Input that is too long is
    truncated. New programs should use `AsyncMLCEngine.embeddings`.

    Args:
        model: The directory of an encoder.
        model_lib: A library that `compile_model` has written for this model.
        device: The device to run on: `auto` or `cpu`.
        pooling_strategy: `mean`, `cls` or `last`; None means the model's default.
        loader: Opens the model, in place of the default loader.

    Raises:
        BadRequestError: If an argument is invalid or not supported, or the model is not an
            encoder.
        ModelLoadError: If the model cannot be opened.
    """

    def __init__(
        self,
        model: ModelPath | None = None,
        model_lib: ModelPath | None = None,
        device: Device = "auto",
        *,
        pooling_strategy: Pooling | None = None,
        loader: Loader | None = None,
    ) -> None:
        if pooling_strategy is not None and pooling_strategy not in _POOLINGS:
            raise BadRequestError(
                f"pooling_strategy must be one of {', '.join(_POOLINGS)}, got {pooling_strategy!r}",
                param="pooling_strategy",
            )

        name = parse_device(device)
        self.device: str = "cpu" if name == AUTO else name  # Encoders run only there.
        self._engine = MLCEngine(model, self.device, model_lib=model_lib, loader=loader)
        try:
            embedder = self._engine.embeddings.embedder()
        except BadRequestError:
            self.terminate()
            raise

        self.tokenizer: EncoderTokenizer = embedder.tokenizer
        self.model_type: Literal["encoder"] = "encoder"
        self.pooling_strategy: Pooling = pooling_strategy or embedder.pooling
        self.normalize: bool = embedder.normalize

    @property
    def embedding_metadata(self) -> dict[str, Any]:
        """The settings under the names of `embedding_metadata` in `mlc-chat-config.json`."""
        return {
            "model_type": self.model_type,
            "pooling_strategy": self.pooling_strategy,
            "normalize": self.normalize,
        }

    def embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """Return the vector of each input, and the total number of tokens. Blocks.

        The vectors are L2-normalized unless `normalize` is False.

        Raises:
            BadRequestError: If `inputs` is not a list of strings, or a string has no tokens.
            EngineError: If the engine is closed.
        """
        if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Sequence):
            raise wrong_type("inputs", inputs, "a list of strings")

        for index, text in enumerate(inputs):
            check_str(f"inputs[{index}]", text)

        if not inputs:
            return [], 0

        response = self._engine.embeddings.create(
            input=list(inputs),
            pooling=self.pooling_strategy,
            normalize=self.normalize,
            truncate=True,
        )
        vectors = [list(map(float, item.embedding)) for item in response.data]
        return vectors, response.usage.prompt_tokens

    async def async_embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """Embed like `embed`, in a worker thread. A cancelled call returns at once."""
        return await to_thread.run_sync(partial(self.embed, inputs), abandon_on_cancel=True)

    def terminate(self) -> None:
        """Free the model; waiting callers get `EngineClosedError`. Idempotent."""
        self._engine.terminate()
