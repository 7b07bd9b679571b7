from mlc_llm.router.router import Router as Router
