"""Pairs of texts as prompts of a causal language model, which is asked whether they match."""

from __future__ import annotations

__all__ = ("PairPromptTokenizer", "read_pair_template")

import re
from typing import Final, final

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer, TextPair
from aiomlc.runtime.native.encoder import EncoderInput
from aiomlc.runtime.templates.jinja_template import ChatTemplate
from aiomlc.runtime.tokenization.backend import encode_text, tokenizer_failures

#: The prompt of Qwen 3's rerankers, for directories whose chat template is that of chats.
_QWEN3: Final = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: "
    "{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | "
    "default('Given a web search query, retrieve relevant passages that answer the query') }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}"
    "\n<Document>: "
    "{{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_QUERY, _DOCUMENT = "query", "document"
_NAMED_ROLES: Final = {_QUERY, _DOCUMENT}
_STRING = re.compile(r"""['"](\w+)['"]""")


def read_pair_template(files: ConfigFiles) -> ChatTemplate:
    """Return the template of pairs, whose messages have the roles `query` and `document`.

    It is the chat template of the directory if that has these roles, as for sentence-transformers,
    else Qwen 3's.

    Raises:
        ModelLoadError: If the chat template cannot be read, or is invalid.
    """
    template = ChatTemplate.load(files)
    if template is not None and set(_STRING.findall(template.source)) >= _NAMED_ROLES:
        return template

    return ChatTemplate(_QWEN3)


@final
class PairPromptTokenizer(EncoderTokenizer):
    """A tokenizer that renders each pair with a template.

    Args:
        config: The text of the `tokenizer.json`.
        max_tokens: The length of truncated inputs.
        template: Renders messages with the roles `query` and `document`.
        instruction: The system message before them; None for the template's own.

    Raises:
        ModelLoadError: If `config` is not a valid tokenizer.
    """

    def __init__(
        self, config: str, max_tokens: int, template: ChatTemplate, instruction: str | None
    ) -> None:
        super().__init__(config, max_tokens)
        self._template = template
        self._instruction = instruction

    def encode_pair(self, pair: TextPair, *, truncate: bool = False) -> EncoderInput:
        """Return the tokens of the prompt of a pair.

        If `truncate` is set, the end of the document is left out so that there are at most
        `max_tokens`, unless the rest is longer.

        Raises:
            BadRequestError: If the template rejects the texts.
            RequestFailedError: If the tokenizer fails on these texts.
        """
        document = pair.second
        with tokenizer_failures():
            ids = self._encode(pair.first, document)
            while truncate and document and (excess := len(ids) - self.max_tokens) > 0:
                document = self._shortened(document, excess)
                ids = self._encode(pair.first, document)
            return EncoderInput(ids)

    def _encode(self, query: str, document: str) -> list[int]:
        messages = [{"role": _QUERY, "content": query}, {"role": _DOCUMENT, "content": document}]
        if self._instruction is not None:
            messages.insert(0, {"role": "system", "content": self._instruction})
        text = self._template.render(messages)
        return encode_text(self._backend, text, add_special_tokens=False)

    def _shortened(self, document: str, excess: int) -> str:
        """Return the document without its last `excess` tokens, and at least one character less."""
        encoding = self._backend.encode(document, add_special_tokens=False)
        kept = len(encoding.ids) - excess
        end = encoding.offsets[kept][0] if kept > 0 else 0
        return document[: min(end, len(document) - 1)]
