from aiomlc import PagedRadixTree as PagedRadixTree
from mlc_llm._not_supported import lacks
from mlc_llm.serve import data as data
from mlc_llm.serve import engine_utils as engine_utils
from mlc_llm.serve.config import EngineConfig as EngineConfig
from mlc_llm.serve.data import Data as Data
from mlc_llm.serve.data import RequestStreamOutput as RequestStreamOutput
from mlc_llm.serve.data import TextData as TextData
from mlc_llm.serve.data import TokenData as TokenData
from mlc_llm.serve.embedding_engine import AsyncEmbeddingEngine as AsyncEmbeddingEngine
from mlc_llm.serve.engine import AsyncMLCEngine as AsyncMLCEngine
from mlc_llm.serve.engine import MLCEngine as MLCEngine
from mlc_llm.serve.request import Request as Request
from mlc_llm.serve.server import PopenServer as PopenServer

__getattr__ = lacks(__name__, "models that read images do not exist here", ["ImageData"])
