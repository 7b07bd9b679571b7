"""The kinds of encoders: one that embeds texts, maybe images too, and one that classifies them."""

from __future__ import annotations

__all__ = ("Classifier", "Embedder", "EncoderModel", "EncoderTask")

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, final

from anyio import to_thread

from aiomlc.errors import BadRequestError
from aiomlc.runtime.embedding.activation import Activation, activate
from aiomlc.runtime.embedding.batcher import EncoderBatcher
from aiomlc.runtime.embedding.dense import DenseLayer
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.embedding.image_embedder import ImageEmbedder
from aiomlc.runtime.embedding.pooling import Pooling, ScoreTokens, pool
from aiomlc.runtime.embedding.similarity import TextEmbedding
from aiomlc.runtime.embedding.text_ends import TextEnd
from aiomlc.runtime.embedding.token_heads import SparseVector, TokenHeads, TokenOutputs
from aiomlc.runtime.native.encoder import EncoderInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


EncoderTask = Literal["embedding", "ranking", "classification", "transcription"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderModel:
    """An encoder that is ready to serve. It belongs to one event loop."""

    tasks: ClassVar[tuple[EncoderTask, ...]]

    batcher: EncoderBatcher
    tokenizer: EncoderTokenizer
    model_name: str
    max_tokens: int  #: Of one input, special tokens included.
    vocab_size: int  #: The exclusive upper bound of token ids.

    def close(self) -> None:
        """Release the encoder; waiting callers get `EngineClosedError`. Thread-safe."""
        self.batcher.close()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder(EncoderModel):
    """An encoder whose pooled hidden states are embeddings."""

    tasks: ClassVar[tuple[EncoderTask, ...]] = ("embedding", "ranking")

    size: int  #: Numbers of an embedding.
    pooling: Pooling = "mean"
    normalize: bool = True
    dense: tuple[DenseLayer, ...] = ()  #: Applied to pooled vectors.
    prompts: Mapping[str, str] = field(default_factory=dict)  #: The beginnings of texts, by name.
    default_prompt: str | None = None
    #: The sizes to which embeddings may be cut (Matryoshka); empty allows all.
    dimensions: tuple[int, ...] = ()
    heads: TokenHeads = field(default_factory=TokenHeads)  #: Of embeddings of tokens.
    text_end: TextEnd | None = None  #: The end of texts; None leaves their tokens as they are.
    images: ImageEmbedder | None = None  #: None if it embeds no images.

    def close(self) -> None:
        """Release the encoder; waiting callers get `EngineClosedError`. Thread-safe."""
        self.batcher.close()
        if self.images is not None:
            self.images.close()

    def require_images(self, param: str) -> ImageEmbedder:
        """Return the part that embeds images.

        Args:
            param: The field of the request with an image.

        Raises:
            BadRequestError: If there is none.
        """
        if self.images is None:
            raise BadRequestError(
                f"{param}: the model {self.model_name} embeds no images; open one that does, such "
                "as a CLIP or SigLIP, or send texts only",
                param=param,
            )

        return self.images

    async def embed(
        self,
        inputs: Sequence[EncoderInput],
        pooling: Pooling,
        outputs: TokenOutputs,
    ) -> list[TextEmbedding]:
        """Return the embedding of each input.

        Args:
            outputs: What is computed besides its vector; the model must have the `heads` for it.

        Raises:
            EngineClosedError: If the encoder was closed before all inputs were embedded.
            RequestFailedError: If the encoder failed, or a number is not finite.
        """
        reduce = partial(self._reduce, pooling=pooling, outputs=outputs)
        if (end := self.text_end) is not None:
            inputs = [EncoderInput(end.apply(each.ids)) for each in inputs]
        results = await self.batcher.run(inputs, reduce)
        if not outputs.sparse:
            return [_embedding(result, None, outputs) for result in results]

        return await to_thread.run_sync(self._with_sparse, inputs, results, outputs)

    def _reduce(
        self, states: NDArray[np.float32], pooling: Pooling, outputs: TokenOutputs
    ) -> list[NDArray[np.float32]]:
        """Return the vector of a text, and at the end what it is asked for: vectors, weights."""
        vector = pool(states, pooling)
        for layer in self.dense:
            vector = layer.apply(vector)
        results = [vector]
        if outputs.multi_vector:
            results.append(self.heads.vectors(states))
        if outputs.sparse:
            results.append(self.heads.weights(states))
        return results

    def _with_sparse(
        self,
        inputs: Sequence[EncoderInput],
        results: Sequence[Sequence[NDArray[np.float32]]],
        outputs: TokenOutputs,
    ) -> list[TextEmbedding]:
        return [
            _embedding(result, self.heads.sparse_vector(each.ids, result[-1]), outputs)
            for each, result in zip(inputs, results, strict=True)
        ]


def _embedding(
    result: Sequence[NDArray[np.float32]], sparse: SparseVector | None, outputs: TokenOutputs
) -> TextEmbedding:
    return TextEmbedding(result[0], sparse, result[1] if outputs.multi_vector else None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier(EncoderModel):
    """An encoder with a head that computes a logit for each label."""

    tasks: ClassVar[tuple[EncoderTask, ...]] = ("classification", "ranking")

    labels: tuple[str, ...]
    activation: Activation
    score_tokens: ScoreTokens | None = None  #: If the logits are those of the vocabulary.

    async def classify(
        self, inputs: Sequence[EncoderInput], activation: Activation | None = None
    ) -> list[NDArray[np.float32]]:
        """Return the activated logits of each input: float32 `[labels]`.

        Args:
            inputs: The tokens of texts, or of pairs.
            activation: In place of that of the model.

        Raises:
            EngineClosedError: If the encoder was closed before all inputs were classified.
            RequestFailedError: If the encoder failed, or a logit is not finite.
        """
        reduce = partial(self._reduce, activation=activation or self.activation)
        return [scores for (scores,) in await self.batcher.run(inputs, reduce)]

    def _reduce(
        self, logits: NDArray[np.float32], activation: Activation
    ) -> tuple[NDArray[np.float32]]:
        if (tokens := self.score_tokens) is not None:
            score = logits[tokens.true : tokens.true + 1]
            logits = score if tokens.false is None else score - logits[tokens.false]
        return (activate(logits, activation),)
