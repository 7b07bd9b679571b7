from mlc_llm._not_supported import lacks

MLC_CHAT_SYSTEM_DEFAULT = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "temperature": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "top_p": 1.0,
}

__getattr__ = lacks(__name__, "use `aiomlc.gen_config`", ["MLCChatConfig"])
