"""Several engines behind one address, as an application of Ray Serve; needs the extra `ray`.

Ray is imported when an application is built, not with this package.
"""

from __future__ import annotations

__all__ = ("RayOptions", "app", "build_app")

from aiomlc.ray.application import app, build_app
from aiomlc.ray.options import RayOptions
