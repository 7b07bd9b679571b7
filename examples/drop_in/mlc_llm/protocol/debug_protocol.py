from aiomlc import DebugConfig as DebugConfig
