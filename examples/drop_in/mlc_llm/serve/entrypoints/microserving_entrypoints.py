from mlc_llm.serve.entrypoints.routes import make_router

app = make_router(
    {
        "/microserving/prep_recv": "POST",
        "/microserving/remote_send": "POST",
        "/microserving/start_generate": "POST",
    }
)
