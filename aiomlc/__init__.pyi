# Engines
from .api.engines.async_engine import AsyncMLCEngine as AsyncMLCEngine
from .api.engines.embedding_engine import AsyncEmbeddingEngine as AsyncEmbeddingEngine
from .api.engines.mlc_engine import MLCEngine as MLCEngine
from .api.engines.planning import plan_memory as plan_memory
from .api.json_ffi.engine import JSONFFIEngine as JSONFFIEngine
from .api.step.engine import SyncMLCEngine as SyncMLCEngine
from .config import EngineConfig as EngineConfig
from .runtime.loading.memory_plan import MemoryPlan as MemoryPlan
from .runtime.loading.progress import LoadProgress as LoadProgress

# isort: split
# Models
from .runtime.loading.pull import pull as pull
from .sources.cached_models import CachedModel as CachedModel
from .sources.cached_models import list_models as list_models
from .sources.removal import RemovedModel as RemovedModel
from .sources.removal import remove_model as remove_model
from .tools.compile_library import compile_model as compile_model
from .tools.convert import ConvertedWeights as ConvertedWeights
from .tools.convert import convert_weights as convert_weights
from .tools.gen_config import gen_config as gen_config

# isort: split
# Requests
from .api.protocol.debug_config import DebugConfig as DebugConfig
from .api.protocol.generation_config import GenerationConfig as GenerationConfig
from .api.protocol.message_params import ChatMessageParam as ChatMessageParam
from .api.step.data import TextData as TextData
from .api.step.data import TokenData as TokenData
from .runtime.engine.pinned_prefix import PinnedPrefix as PinnedPrefix
from .runtime.engine.prefix_transfer import PrefixExport as PrefixExport
from .runtime.images.image_data import ImageData as ImageData
from .runtime.templates.conversation import Conversation as Conversation
from .runtime.templates.placeholders import MessagePlaceholders as MessagePlaceholders
from .runtime.templates.registry import ConvTemplateRegistry as ConvTemplateRegistry
from .runtime.templates.registry import (
    register_conversation_template as register_conversation_template,
)
from .runtime.templates.tool_prompt import FunctionForm as FunctionForm
from .runtime.templates.tool_prompt import ToolPromptFormat as ToolPromptFormat

# isort: split
# Answers
from .api.chat.stream import ChatCompletionStream as ChatCompletionStream
from .api.chat.typed_output import ParsedChatCompletion as ParsedChatCompletion
from .api.completions.stream import CompletionStream as CompletionStream
from .api.completions.token_stream import TokenStream as TokenStream
from .api.protocol.chat import ChatCompletion as ChatCompletion
from .api.protocol.chat import ChatCompletionChunk as ChatCompletionChunk
from .api.protocol.completion import Completion as Completion
from .api.protocol.embedding import EmbeddingResponse as EmbeddingResponse
from .api.protocol.ranking import ClassifyResponse as ClassifyResponse
from .api.protocol.ranking import RerankResponse as RerankResponse
from .api.protocol.ranking import ScoreResponse as ScoreResponse
from .api.protocol.response import Response as Response
from .api.protocol.transcription import Transcription as Transcription
from .api.protocol.transcription import TranscriptionSegment as TranscriptionSegment
from .api.radix_tree import PagedRadixTree as PagedRadixTree
from .api.responses.resource import ResponseStream as ResponseStream
from .api.streams.pending_stream import PendingStream as PendingStream
from .api.transcription import TranscriptionStream as TranscriptionStream
from .runtime.engine.core_protocol import TokenLogprob as TokenLogprob
from .runtime.engine.stream import Delta as Delta
from .runtime.tokenization.stop_str_handler import StopStrHandler as StopStrHandler
from .runtime.tokenization.text_streamer import TextStreamer as TextStreamer
from .runtime.tokenization.tokenizer import Tokenizer as Tokenizer

# isort: split
# Observability
from .api.observability.event_trace_recorder import EventTraceRecorder as EventTraceRecorder
from .api.observability.metrics import EngineMetrics as EngineMetrics
from .api.observability.prometheus import EngineCollector as EngineCollector
from .api.observability.prometheus import prometheus_text as prometheus_text
from .runtime.engine.core_protocol import CoreStatistics as CoreStatistics
from .runtime.engine.events import EngineEvent as EngineEvent
from .runtime.engine.events import EngineEventStream as EngineEventStream
from .runtime.engine.statistics import Histogram as Histogram

# isort: split
# Errors
from .errors import AiomlcError as AiomlcError
from .errors import BadRequestError as BadRequestError
from .errors import CompileError as CompileError
from .errors import DeadlineExceededError as DeadlineExceededError
from .errors import DuplicateRequestError as DuplicateRequestError
from .errors import EngineClosedError as EngineClosedError
from .errors import EngineDeadError as EngineDeadError
from .errors import EngineDrainingError as EngineDrainingError
from .errors import EngineError as EngineError
from .errors import EngineOverloadedError as EngineOverloadedError
from .errors import GrammarError as GrammarError
from .errors import IncompleteAnswerError as IncompleteAnswerError
from .errors import InputTooLongError as InputTooLongError
from .errors import LogitsProcessorError as LogitsProcessorError
from .errors import MissingPackageError as MissingPackageError
from .errors import ModelAccessError as ModelAccessError
from .errors import ModelDownloadError as ModelDownloadError
from .errors import ModelLoadError as ModelLoadError
from .errors import ModelNotFoundError as ModelNotFoundError
from .errors import PrefixNotCachedError as PrefixNotCachedError
from .errors import PrefixTransferError as PrefixTransferError
from .errors import PromptTooLongError as PromptTooLongError
from .errors import RemoteServerError as RemoteServerError
from .errors import ReplicaLostError as ReplicaLostError
from .errors import RequestAbortedError as RequestAbortedError
from .errors import RequestError as RequestError
from .errors import RequestFailedError as RequestFailedError
from .errors import UnsupportedFieldError as UnsupportedFieldError
from .runtime.loading.memory_plan import InsufficientMemoryError as InsufficientMemoryError

# isort: split
from ._version import __version__ as __version__
