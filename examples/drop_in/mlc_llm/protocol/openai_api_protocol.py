from aiomlc import ChatCompletion as ChatCompletionResponse
from aiomlc import ChatCompletionChunk as ChatCompletionStreamResponse
from aiomlc import Completion as CompletionResponse
from aiomlc import EmbeddingResponse as EmbeddingResponse
from aiomlc.api.protocol.chat import ChatCompletionMessage as ChatCompletionMessage
from aiomlc.api.protocol.chat import Choice as ChatCompletionResponseChoice
from aiomlc.api.protocol.chat import ChoiceLogprobs as LogProbs
from aiomlc.api.protocol.chat import ChunkChoice as ChatCompletionStreamResponseChoice
from aiomlc.api.protocol.chat import TokenLogprob as LogProbsContent
from aiomlc.api.protocol.chat import TopLogprob as TopLogProbs
from aiomlc.api.protocol.chat_request import ChatCompletionRequest as ChatCompletionRequest
from aiomlc.api.protocol.completion import CompletionChoice as CompletionResponseChoice
from aiomlc.api.protocol.completion import CompletionLogprobs as CompletionLogProbs
from aiomlc.api.protocol.completion import CompletionRequest as CompletionRequest
from aiomlc.api.protocol.embedding import Embedding as EmbeddingObject
from aiomlc.api.protocol.embedding import EmbeddingRequest as EmbeddingRequest
from aiomlc.api.protocol.embedding import EmbeddingUsage as EmbeddingUsage
from aiomlc.api.protocol.messages import FunctionCall as ChatFunctionCall
from aiomlc.api.protocol.messages import ToolCall as ChatToolCall
from aiomlc.api.protocol.model import Model as ModelResponse
from aiomlc.api.protocol.model import ModelList as ListResponse
from aiomlc.api.protocol.request import StreamOptions as StreamOptions
from aiomlc.api.protocol.response_format import JsonObjectFormat as RequestResponseFormat
from aiomlc.api.protocol.tools import FunctionDefinition as ChatFunction
from aiomlc.api.protocol.tools import Tool as ChatTool
from aiomlc.api.protocol.usage import Usage as CompletionUsage
from mlc_llm._not_supported import lacks

CHAT_COMPLETION_MAX_TOP_LOGPROBS = 20
COMPLETION_MAX_TOP_LOGPROBS = 5

__all__ = (
    "CHAT_COMPLETION_MAX_TOP_LOGPROBS",
    "COMPLETION_MAX_TOP_LOGPROBS",
    "ChatCompletionMessage",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChatCompletionResponseChoice",
    "ChatCompletionStreamResponse",
    "ChatCompletionStreamResponseChoice",
    "ChatFunction",
    "ChatFunctionCall",
    "ChatTool",
    "ChatToolCall",
    "CompletionLogProbs",
    "CompletionRequest",
    "CompletionResponse",
    "CompletionResponseChoice",
    "CompletionUsage",
    "EmbeddingObject",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EmbeddingUsage",
    "ListResponse",
    "LogProbs",
    "LogProbsContent",
    "ModelResponse",
    "RequestResponseFormat",
    "StreamOptions",
    "TopLogProbs",
)

__getattr__ = lacks(
    __name__, "requests are checked when they are made", ["openai_api_get_unsupported_fields"]
)
