from aiomlc import StopStrHandler as StopStrHandler
from aiomlc import TextStreamer as TextStreamer
