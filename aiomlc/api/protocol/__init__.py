"""OpenAI's wire models: parse, and nothing else."""
