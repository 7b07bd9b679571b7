"""The words the outside world uses: OpenAI's shapes, async and blocking engines."""
