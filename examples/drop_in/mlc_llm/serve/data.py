from aiomlc import TextData as TextData
from aiomlc import TokenData as TokenData
from aiomlc.api.step.data import Data as Data
from aiomlc.api.step.data import RequestStreamOutput as RequestStreamOutput
from aiomlc.api.step.data import SingleRequestStreamOutput as SingleRequestStreamOutput
from mlc_llm._not_supported import lacks

__getattr__ = lacks(__name__, "models that read images do not exist here", ["ImageData"])
