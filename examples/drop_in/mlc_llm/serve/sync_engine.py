from aiomlc import EngineConfig as EngineConfig
from aiomlc import SyncMLCEngine as SyncMLCEngine
