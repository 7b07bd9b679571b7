from aiomlc import DebugConfig as DebugConfig
from mlc_llm._not_supported import lacks

__getattr__ = lacks(__name__, "servers exchange prefixes by themselves", ["DisaggConfig"])
