"""MLC LLM's import paths for programs that are to run on aiomlc unchanged."""

from aiomlc import AsyncMLCEngine as AsyncMLCEngine
from aiomlc import MLCEngine as MLCEngine
from aiomlc import __version__ as __version__
from mlc_llm import protocol as protocol
from mlc_llm import serve as serve
