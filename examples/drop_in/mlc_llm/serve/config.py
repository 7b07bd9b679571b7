from aiomlc import EngineConfig as EngineConfig
