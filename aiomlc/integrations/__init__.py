"""Adapters of other frameworks to engines; each module needs the extra of its framework.

They are not imported with `aiomlc`.
"""
