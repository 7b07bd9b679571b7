"""GGUF files, read as the Hugging Face directories that they were made from.

`container` and `model` read a file's header. From its metadata, `config` makes a `config.json`,
`tokenizer` a `tokenizer.json` and `directory` the other small files, and `tensor_names` finds the
tensors under the names of the graph. So every reader of a model works for both.
"""

from __future__ import annotations

__all__ = ()
