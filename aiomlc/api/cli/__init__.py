"""The command line, an extra: `pip install aiomlc[cli]`."""
