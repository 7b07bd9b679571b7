"""The layers of BGE M3 that compute more than a vector of a text: a weight and a vector per token.

A token's weight says how much the token counts if another text has it, too (a lexical match, or
sparse embedding). Vectors of tokens are compared one by one (late interaction, as in ColBERT). The
definitions are those of FlagEmbedding.
"""

from __future__ import annotations

__all__ = ("SparseVector", "TokenHeads", "TokenOutputs", "read_token_heads", "token_text")

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.output_head import has_tensor
from aiomlc.runtime.embedding.dense import DenseLayer, TensorSource
from aiomlc.weights.formats.safetensors import read_safetensors, read_safetensors_file
from aiomlc.weights.formats.source import SourceTensor
from aiomlc.weights.formats.torch_file import read_torch_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_SPARSE, _MULTI_VECTOR = "sparse_linear", "colbert_linear"
_READERS: Final[Mapping[str, Callable[[Path], dict[str, SourceTensor]]]] = {
    ".safetensors": read_safetensors_file,
    ".pt": read_torch_file,
}
#: The tokens without a weight, and the defaults of the tokenizer of XLM-RoBERTa.
_UNWEIGHTED: Final = {
    "cls_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


class TokenOutputs(NamedTuple):
    """The outputs that an encoder is asked for, besides vectors of texts."""

    sparse: bool = False
    multi_vector: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """The weights of the tokens of a text that have one."""

    indices: NDArray[np.int32]  #: Token ids, ascending.
    values: NDArray[np.float32]  #: Their weights, > 0.


@dataclass(frozen=True, slots=True, eq=False)
class TokenHeads:
    """The layers of a model; None for one that it does not have."""

    sparse: DenseLayer | None = None
    multi_vector: DenseLayer | None = None
    unweighted: frozenset[int] = frozenset()  #: The ids of tokens that never have a weight.

    def weights(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the weight of each token, `[tokens]`, for hidden states `[tokens, hidden]`."""
        assert self.sparse is not None, "checked before the forward pass"
        weights: NDArray[np.float32] = np.maximum(self.sparse.apply_rows(states)[:, 0], 0)
        return weights

    def vectors(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vector of each token but the first, `[tokens - 1, size]`."""
        assert self.multi_vector is not None, "checked before the forward pass"
        return self.multi_vector.apply_rows(states[1:])

    def sparse_vector(self, ids: Sequence[int], weights: NDArray[np.float32]) -> SparseVector:
        """Return the largest weight of each token of a text."""
        indices, places = np.unique(np.asarray(ids, np.int32), return_inverse=True)
        values = np.zeros(len(indices), np.float32)
        np.maximum.at(values, places, weights)
        is_kept = (values > 0) & ~np.isin(indices, list(self.unweighted))
        return SparseVector(indices[is_kept], values[is_kept])


def read_token_heads(
    files: ConfigFiles, hidden_size: int, token_id: Callable[[str], int | None]
) -> TokenHeads:
    """Read the layers that are beside a model: `NAME.safetensors`, or PyTorch's `NAME.pt`.

    They may also be among the tensors of the model.

    Args:
        token_id: Returns the id of a special token; None if there is none.

    Raises:
        ModelLoadError: If a file is invalid, or its tensors have other shapes.
    """
    sparse = _read_layer(files, _SPARSE, (1, hidden_size))
    multi_vector = _read_layer(files, _MULTI_VECTOR, (None, hidden_size))
    if sparse is None:
        return TokenHeads(None, multi_vector)

    path = files.path("tokenizer_config.json")
    fields = Fields(files.object(path.name) or {}, path)
    ids = (token_id(token_text(fields, name, token)) for name, token in _UNWEIGHTED.items())
    return TokenHeads(sparse, multi_vector, frozenset(each for each in ids if each is not None))


def _read_layer(files: ConfigFiles, name: str, shape: tuple[int | None, int]) -> DenseLayer | None:
    if files.is_gguf:
        return None

    for suffix, read in _READERS.items():
        path = files.model / f"{name}{suffix}"
        if path.exists():
            return _layer(TensorSource(path, read(path)), "", shape)

    if not has_tensor(files.model, f"{name}.weight"):
        return None

    weights = read_safetensors(files.model)
    return _layer(TensorSource(weights.index, weights.tensors), f"{name}.", shape)


def _layer(source: TensorSource, prefix: str, shape: tuple[int | None, int]) -> DenseLayer:
    weight = source.floats(f"{prefix}weight", shape)
    bias = source.floats(f"{prefix}bias", weight.shape[:1])
    return DenseLayer(weight, bias, has_tanh=False)


def token_text(fields: Fields, name: str, default: str) -> str:
    """Return a special token of `tokenizer_config.json`, which may be an object with its text.

    Raises:
        ModelLoadError: If it is neither.
    """
    nested = fields.nested(name) if isinstance(fields.value(name), dict) else None
    return fields.string(name, default) if nested is None else nested.string("content", default)
