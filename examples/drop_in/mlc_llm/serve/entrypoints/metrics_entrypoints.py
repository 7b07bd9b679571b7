from mlc_llm.serve.entrypoints.routes import make_router

app = make_router(
    {
        "/metrics": "GET",
    }
)
