"""MLC LLM's import paths for programs that are to run on aiomlc unchanged."""

from aiomlc import __version__ as __version__
from mlc_llm import _not_supported as _not_supported
from mlc_llm import protocol as protocol
from mlc_llm import serve as serve
from mlc_llm.serve.engine import AsyncMLCEngine as AsyncMLCEngine
from mlc_llm.serve.engine import MLCEngine as MLCEngine
