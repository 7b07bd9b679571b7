from aiomlc import StopStrHandler as StopStrHandler
from aiomlc import TextStreamer as TextStreamer
from aiomlc import Tokenizer as Tokenizer
