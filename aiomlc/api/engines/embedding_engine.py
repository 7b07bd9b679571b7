"""`AsyncEmbeddingEngine`, for programs written for MLC LLM's class of this name."""

from __future__ import annotations

__all__ = ("AsyncEmbeddingEngine",)

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, final

from anyio import to_thread

from aiomlc.api.engines.mlc_engine import MLCEngine
from aiomlc.api.session.loader import Loader, ModelPath
from aiomlc.devices import Device
from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import check_str, wrong_type

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.pooling import Pooling

_POOLINGS = ("mean", "cls", "last")


@final
class AsyncEmbeddingEngine:
    """An engine that embeds text with an encoder, for threads and for tasks of any event loop.

    The constructor opens the model and blocks until it is ready. Input that is too long is
    truncated. New programs should use `AsyncMLCEngine.embeddings`.

    Args:
        model: The directory of an encoder.
        model_lib: Not supported: the library is compiled.
        device: The device to run on: `auto` or `cpu`.
        pooling_strategy: The pooling of hidden states; None means the model's default.
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

        self._pooling: Pooling | None = pooling_strategy
        self._engine = MLCEngine(model, device, model_lib=model_lib, loader=loader)
        try:
            self.embed([" "])  # Fails unless the model is an encoder.
        except BadRequestError:
            self.terminate()
            raise

    def embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """Return the normalized vector of each input, and the total number of tokens. Blocks.

        Raises:
            BadRequestError: If `inputs` is not a non-empty list of strings, or a string has no
                tokens.
            EngineError: If the engine is closed.
        """
        if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Sequence):
            raise wrong_type("inputs", inputs, "a list of strings")

        for index, text in enumerate(inputs):
            check_str(f"inputs[{index}]", text)

        response = self._engine.embeddings.create(
            input=list(inputs), pooling=self._pooling, truncate=True
        )
        vectors = [list(map(float, item.embedding)) for item in response.data]
        return vectors, response.usage.prompt_tokens

    async def async_embed(self, inputs: Sequence[str]) -> tuple[list[list[float]], int]:
        """Embed like `embed`, in a worker thread. A cancelled call returns at once."""
        return await to_thread.run_sync(partial(self.embed, inputs), abandon_on_cancel=True)

    def terminate(self) -> None:
        """Free the model; waiting callers get `EngineClosedError`. Idempotent."""
        self._engine.terminate()
