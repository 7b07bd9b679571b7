from aiomlc import Tokenizer as Tokenizer
from mlc_llm._not_supported import lacks

__getattr__ = lacks(__name__, "the tokenizer's file says it", ["TokenizerInfo"])
