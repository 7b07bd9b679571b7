from mlc_llm.json_ffi.engine import JSONFFIEngine as JSONFFIEngine
