from mlc_llm.serve.entrypoints.routes import make_router

app = make_router(
    {
        "/debug/cuda_profiler_start": "POST",
        "/debug/cuda_profiler_stop": "POST",
        "/debug/dump_engine_metrics": "POST",
        "/debug/dump_event_trace": "POST",
        "/debug/reset_engine": "POST",
    }
)
