from aiomlc import GenerationConfig as GenerationConfig
