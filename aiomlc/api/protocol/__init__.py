"""Pydantic models of the OpenAI API: the fields of requests and responses, and their validation."""
