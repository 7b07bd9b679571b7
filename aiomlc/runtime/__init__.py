"""One loaded model: token ids in, text deltas out. Knows no HTTP and no OpenAI."""
