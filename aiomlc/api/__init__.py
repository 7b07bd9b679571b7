"""The public API: engines, and requests and responses in the shape of OpenAI's."""
