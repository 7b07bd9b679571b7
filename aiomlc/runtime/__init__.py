"""One loaded model: token ids in, text deltas out.

Knows OpenAI's message and tool dicts, but no HTTP and none of OpenAI's requests and responses.
"""
