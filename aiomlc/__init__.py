"""Run large language models inside a Python program, as async iterators on asyncio and trio.

The public names and the modules that define them are listed in `__init__.pyi`; each is imported
when it is first used, so that `import aiomlc` costs nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
