from aiomlc import AsyncMLCEngine as AsyncMLCEngine
from aiomlc import EngineConfig as EngineConfig
from aiomlc import MLCEngine as MLCEngine
from aiomlc.api.step.data import Request as Request
from aiomlc.api.step.data import RequestStreamOutput as RequestStreamOutput
from mlc_llm.serve import data as data
