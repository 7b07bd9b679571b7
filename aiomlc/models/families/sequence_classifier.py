"""Fields of sequence classifiers, which all families share."""

from __future__ import annotations

__all__ = ("is_classifier", "num_labels")

from aiomlc.models.config.fields import Fields


def is_classifier(fields: Fields) -> bool:
    """Return whether a config is that of a sequence classifier."""
    architectures = fields.strings("architectures") if "architectures" in fields else []
    return any(name.endswith("ForSequenceClassification") for name in architectures)


def num_labels(fields: Fields) -> int:
    """Return the number of labels: that of the names in `id2label`, by default 2."""
    return len(fields.nested("id2label").names()) or fields.integer("num_labels", 2)
