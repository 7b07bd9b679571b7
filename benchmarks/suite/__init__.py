"""One command that measures aiomlc and its rivals on the same shapes, in turns."""
