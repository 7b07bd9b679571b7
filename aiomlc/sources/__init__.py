"""Sources of models: local paths, and repositories of the Hugging Face hub.

`resolve.fetch` turns the name of a model into a path. Downloads run in a subprocess (`python -m
aiomlc.sources`), for which nothing is imported here, and end in the cache of huggingface_hub.
"""

from __future__ import annotations

__all__ = ()
