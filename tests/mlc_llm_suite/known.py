"""MLC LLM's tests (commit 79d603f0): those that do not apply here or do not pass, and why."""

from __future__ import annotations

__all__ = ("FAILING", "IMAGE_READER", "NOT_APPLICABLE", "SUITES")

from collections.abc import Mapping

#: The model that reads images.
IMAGE_READER = "llava-1.5-7b-hf-q4f16_1-MLC"
#: The files of each suite, with the model that is served to it.
SUITES: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
    "engine": (
        None,
        (
            "serve/test_serve_engine.py",
            "serve/test_serve_async_engine.py",
            "serve/test_serve_async_engine_spec.py",
            "serve/test_serve_sync_engine.py",
            "serve/test_serve_engine_grammar.py",
            "serve/test_serve_engine_image.py",
            "serve/test_serve_engine_mock.py",
            "serve/test_serve_engine_prefix_cache.py",
            "serve/test_serve_engine_spec.py",
            "serve/test_event_trace_recorder.py",
            "serve/test_radix_tree.py",
            "serve/test_embedding_engine.py",
            "json_ffi/test_json_ffi_engine.py",
            "json_ffi/test_json_ffi_engine_image.py",
            "json_ffi/test_json_ffi_engine_mock.py",
            "conversation_template/test_conversation_protocol.py",
            "conversation_template/test_llama_template.py",
            "tokenizers/test_streamer.py",
            "model/test_gemma3.py",
            "model/test_gpt2.py",
            "model/test_gptNeox.py",
            "model/test_llama.py",
            "model/test_llama_quantization.py",
            "model/test_mistral.py",
            "model/test_phi.py",
            "model/test_qwen3_embedding.py",
            "quantization/test_awq_quantization.py",
            "quantization/test_group_quantization.py",
        ),
    ),
    "server": (
        "served",
        ("serve/server/test_server.py", "serve/server/test_embedding_server.py"),
    ),
    "images": (IMAGE_READER, ("serve/server/test_server_image.py",)),
    "function calls": ("gorilla", ("serve/server/test_server_function_call.py",)),
}

_BY_REASON = {
    "EAGLE does not exist here": {
        "serve/test_serve_engine_prefix_cache.py": ["test_engine_eagle_multi_round"],
        "serve/test_serve_engine_spec.py": [
            "test_engine_eagle_basic",
            "test_engine_eagle_continuous_batching_1",
            "test_engine_eagle_generate",
            "test_engine_eagle_spec_efficiency",
        ],
    },
    "fails in MLC LLM: the fixture `engine` does not exist": {
        "serve/test_serve_engine_prefix_cache.py": [
            "test_engine_system_prompt",
            "test_engine_multi_round",
        ],
    },
    "fails in MLC LLM: takes no model, but is called with one": {
        "json_ffi/test_json_ffi_engine_image.py": ["test_chat_completion"],
    },
    "fails in MLC LLM: compares a list with a string, and a newline too many": {
        "conversation_template/test_conversation_protocol.py": ["test_prompt"],
        "conversation_template/test_llama_template.py": ["test_llama3_prompt"],
    },
    "fails in MLC LLM: expects the error of another field, and sends chats to /v1/completions": {
        "serve/server/test_server.py": [
            "test_openai_v1_completions_invalid_logprobs",
            "test_openai_v1_chat_completions_invalid_logprobs",
        ],
    },
    "the classes of MLC LLM's compiler do not exist here": {
        "model/test_gemma3.py": ["test_gemma3_model_registered"],
        "model/test_gpt2.py": ["test_gpt2_creation"],
        "model/test_gptNeox.py": ["test_mistral_creation"],
        "model/test_llama.py": ["test_llama2_creation"],
        "model/test_llama_quantization.py": [
            "test_llama2_group_quantization",
            "test_llama2_no_quantization",
        ],
        "model/test_mistral.py": ["test_mistral_creation"],
        "model/test_phi.py": ["test_phi_creation"],
        "model/test_qwen3_embedding.py": ["test_mlc_hf_logit_match"],
        "quantization/test_awq_quantization.py": ["test_dequantize_weight"],
        "quantization/test_group_quantization.py": [
            "test_quantize_weight",
            "test_dequantize_weight",
            "test_quantize_model",
        ],
    },
}
FAILING: Mapping[str, str] = {
    f"{file}::{function}": reason
    for reason, files in _BY_REASON.items()
    for file, functions in files.items()
    for function in functions
}
NOT_APPLICABLE: Mapping[str, str] = {
    "serve/test_embedding_engine.py::test_long_text_decoder_chunked_prefill": "skips encoders",
    "serve/test_embedding_engine.py::test_long_vs_short_semantic_quality": "is of trained models",
    "model/test_gemma3.py::test_gemma3_creation": "MLC LLM lacks its presets",
    "model/test_gemma3.py::test_gemma3_config_validation": "MLC LLM lacks its presets",
}
