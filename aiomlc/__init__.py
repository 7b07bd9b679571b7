"""Run large language models inside a Python program, as async iterators on asyncio and trio.

The public names and the modules that define them are listed in `__init__.pyi`; each is imported
when it is first used, so that `import aiomlc` costs nothing.
"""

import sys

import lazy_loader

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_ENGINES = "AsyncMLCEngine, or MLCEngine in code without async"
_CLIENT = "AsyncMLCEngine().openai_client(), or MLCEngine().openai_client()"
# What other libraries call it, and what there is here.
_ELSEWHERE = {
    **dict.fromkeys(("LLM", "AsyncLLM", "AsyncLLMEngine", "Llama", "LLMEngine"), _ENGINES),
    **dict.fromkeys(("Engine", "AsyncEngine", "Client", "AsyncClient"), _ENGINES),
    **dict.fromkeys(("OpenAI", "AsyncOpenAI"), _CLIENT),
    "SamplingParams": "keyword arguments of chat.completions.create, such as temperature=0",
}


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        return _find(name)

    from inspect import currentframe

    message = f"aiomlc has no {name!r}: use {_ELSEWHERE[name]}"
    # `from aiomlc import name` has its own words in place of an AttributeError.
    frame = currentframe()
    caller = None if frame is None else frame.f_back
    if caller is not None and caller.f_globals.get("__name__") == "importlib._bootstrap":
        raise ImportError(message, name=__name__)

    raise AttributeError(message, name=name, obj=sys.modules[__name__])
