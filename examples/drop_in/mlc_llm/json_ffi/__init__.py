from aiomlc import JSONFFIEngine as JSONFFIEngine
