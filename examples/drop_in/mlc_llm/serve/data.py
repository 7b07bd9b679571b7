from aiomlc import TextData as TextData
from aiomlc import TokenData as TokenData
from aiomlc.api.step.data import SingleRequestStreamOutput as SingleRequestStreamOutput
