"""`AsyncEmbeddingEngine` with MLC LLM's private members."""

from __future__ import annotations

from typing import Any

import aiomlc


class AsyncEmbeddingEngine(aiomlc.AsyncEmbeddingEngine):  # type: ignore[misc]
    """aiomlc's engine that embeds text with an encoder."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        special = self.tokenizer.encode("")
        self._cls_token_id = special[0] if special else None
        self._sep_token_id = special[-1] if len(special) > 1 else None
        self._metadata = {
            **self.embedding_metadata,
            "prefill_chunk_size": self.tokenizer.max_tokens,
        }
