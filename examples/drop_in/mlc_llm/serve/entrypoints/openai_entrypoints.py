from mlc_llm.serve.entrypoints.routes import make_router

app = make_router(
    {
        "/v1/chat/completions": "POST",
        "/v1/completions": "POST",
        "/v1/embeddings": "POST",
        "/v1/models": "GET",
    }
)
