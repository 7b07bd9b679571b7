from aiomlc import ChatCompletion as ChatCompletionResponse
from aiomlc import ChatCompletionChunk as ChatCompletionStreamResponse
from aiomlc import Completion as CompletionResponse

__all__ = ("ChatCompletionResponse", "ChatCompletionStreamResponse", "CompletionResponse")
