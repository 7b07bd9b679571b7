"""The function that turns a classifier's logits into scores, and the labels' names."""

from __future__ import annotations

__all__ = ("Activation", "activate", "read_activation", "read_labels")

from typing import TYPE_CHECKING, Literal

import numpy as np

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.models.config.fields import Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

Activation = Literal["sigmoid", "softmax", "identity"]

_CLASSES: dict[str, Activation] = {
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
    "Identity": "identity",
}
_PROBLEMS: dict[str, Activation] = {
    "regression": "identity",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}


def activate(logits: NDArray[np.float32], activation: Activation) -> NDArray[np.float32]:
    """Return the activated logits of one input, `[labels]`, computed in float64."""
    wide = logits.astype(np.float64)
    if activation == "sigmoid":
        # Neither side overflows.
        wide = np.exp(np.minimum(wide, 0)) / (1 + np.exp(-np.abs(wide)))
    elif activation == "softmax":
        powers = np.exp(wide - wide.max())
        wide = powers / powers.sum()
    scores: NDArray[np.float32] = wide.astype(np.float32)
    return scores


def read_labels(files: ConfigFiles, num_labels: int) -> tuple[str, ...]:
    """Return the name of each label: those of `id2label`, else `LABEL_0` and so on.

    Raises:
        ModelLoadError: If a name is not a string.
    """
    names = _fields(files).nested("id2label")
    return tuple(names.string(str(index), f"LABEL_{index}") for index in range(num_labels))


def read_activation(files: ConfigFiles, num_labels: int) -> Activation:
    """Return the activation of a classifier, which is the first of these that the config has:

    the function that sentence-transformers stores for a cross encoder, that of its `problem_type`,
    a sigmoid of one label, a softmax of several.

    Raises:
        ModelLoadError: If the function is not supported.
    """
    fields = _fields(files)
    nested, names = fields.nested("sentence_transformers"), ("activation_fn",)
    if names[0] not in nested:
        nested, names = fields, ("sbert_ce_default_activation_function",)
    if names[0] in nested:
        kind = nested.string(names[0]).rpartition(".")[2]
        if kind not in _CLASSES:
            problem = f"must be one of {', '.join(_CLASSES)}, got {kind[:80]}"
            raise nested.error(names[0], problem)

        return _CLASSES[kind]

    default: Activation = "sigmoid" if num_labels == 1 else "softmax"
    if "problem_type" not in fields or num_labels == 1:
        return default

    return _PROBLEMS[fields.choice("problem_type", tuple(_PROBLEMS))]


def _fields(files: ConfigFiles) -> Fields:
    path = files.path("mlc-chat-config.json")
    if (values := files.object(path.name)) is not None:
        return Fields(values, path).nested("model_config")

    path = files.path("config.json")
    return Fields(files.object(path.name) or {}, path)
