from aiomlc import AsyncMLCEngine as AsyncMLCEngine
from aiomlc import MLCEngine as MLCEngine
