"""Matrices of GGUF's blocks, which contain their scales."""

from __future__ import annotations

__all__ = ("BLOCK_FORMATS", "block_matrix")

from collections.abc import Mapping
from types import MappingProxyType

from aiomlc.weights.formats.source import SourceTensor
from aiomlc.weights.storage.stored_matrix import StoredMatrix, StoredType
from aiomlc.weights.storage.tensors import shape_error

#: The packed format with the same numbers, for each type of blocks.
BLOCK_FORMATS: Mapping[StoredType, str] = MappingProxyType(
    {
        "Q4_0": "u4g32f16z8",
        "Q4_1": "u4g32f16m",
        "Q5_0": "u5g32f16z16",
        "Q5_1": "u5g32f16m",
        "Q8_0": "u8g32f16z128",
        "Q2_K": "u2g16k8m",
        "Q3_K": "u3g16k8sz4",
        "Q4_K": "u4g32k8m",
        "Q5_K": "u5g32k8m",
        "Q6_K": "u6g16k8sz32",
        "IQ4_NL": "iq4nlg32f16",
        "MXFP4": "e2m1g32bf16",
    }
)


def block_matrix(tensor: SourceTensor, kind: StoredType, shape: tuple[int, ...]) -> StoredMatrix:
    """Return a tensor of blocks as the rows of a matrix with this shape."""
    if len(tensor.shape) != 2 or tensor.shape[1:] != shape[1:]:
        raise shape_error(tensor, shape)

    rows, columns = tensor.shape
    return StoredMatrix(kind, rows, columns, tensor, format=BLOCK_FORMATS[kind])
