"""The allowed range of every number in a config: one table for all families.

The bounds lie far beyond every published model. They are there so that a wrong number is refused
when it is read, and not when a graph, a table or a memory plan of that size is made.
"""

from __future__ import annotations

__all__ = ("INTEGERS", "MAX_EXPERT_MATRICES", "MAX_LIST_LENGTH", "NUMBERS")

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LAYERS = (1, 2048)
_ANY = (1, 2**31 - 1)  # Compared with other numbers only.
_WIDTH = (1, 2**18)
_INNER_WIDTH = (1, 2**20)
_TOKENS = (1, 2**27)  # Of a sequence.
_PIXELS = (1, 2**16)  # Along a side of an image.
_TOKEN_ID = (0, 2**24)
_SAMPLES = (1, 2**20)  # Of audio.

#: Inclusive bounds. -1 is MLC's "none", and 0 stands for a default.
INTEGERS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "altup_active_idx": (0, 63),
        "altup_num_inputs": (2, 64),
        "attention_head_size": (1, 4096),
        "attention_sink_size": (-1, 2**20),
        "bits": (1, 32),
        "conv_L_cache": (1, 64),
        "block_ff_dim": _INNER_WIDTH,
        "block_multiple_of": _INNER_WIDTH,
        "chunk_length": (1, 2**12),
        "context_window_size": (-1, _TOKENS[1]),
        "decoder_sparse_step": _ANY,
        "downsample_hidden_size": (1, 4096),
        "encoder_attention_heads": (1, 4096),
        "encoder_ffn_dim": _INNER_WIDTH,
        "encoder_layers": _LAYERS,
        "eos_token_id": _TOKEN_ID,
        "false_token_id": _TOKEN_ID,
        "feature_size": (1, 1024),
        "full_attention_interval": _ANY,
        "global_head_dim": (1, 4096),
        "global_attn_every_n_layers": _ANY,
        "group_size": (-1, 2**20),
        "d_model": _WIDTH,
        "decoder_attention_heads": (1, 4096),
        "decoder_ffn_dim": _INNER_WIDTH,
        "decoder_layers": _LAYERS,
        "decoder_start_token_id": _TOKEN_ID,
        "dim": _WIDTH,
        "head_dim": (0, 4096),
        "hidden_dim": _INNER_WIDTH,
        "hidden_size": _WIDTH,
        "hop_length": _SAMPLES,
        "hidden_size_per_layer_input": (0, 2**16),
        "height": _PIXELS,
        "image_size": _PIXELS,
        "in_features": _INNER_WIDTH,
        "inner_group_num": (1, 16),
        "intermediate_size": _INNER_WIDTH,
        "laurel_rank": _WIDTH,
        "linear_conv_kernel_dim": (1, 64),
        "linear_key_head_dim": (1, 1024),
        "linear_num_key_heads": (1, 4096),
        "linear_num_value_heads": (1, 4096),
        "linear_value_head_dim": (1, 1024),
        "local_attention": _ANY,
        "max_initial_timestamp_index": (0, 2**16),
        "max_position_embeddings": _TOKENS,
        "max_relative_positions": (-1, 2**16),
        "max_source_positions": (1, 2**16),
        "max_target_positions": (4, 2**16),
        "max_trained_positions": _TOKENS,
        "max_window_layers": (0, 2**31 - 1),
        "min_length": (1, 2**20),
        "moe_intermediate_size": _INNER_WIDTH,
        "n_fft": _SAMPLES,
        "n_heads": (1, 4096),
        "n_window": (1, 2**12),
        "n_window_infer": (1, 2**20),
        "n_layers": _LAYERS,
        "no_rope_layer_interval": _ANY,
        "no_timestamps_token_id": _TOKEN_ID,
        "num_attention_heads": (1, 4096),
        "num_bits": (1, 32),
        "num_channels": (1, 16),
        "num_dense_layers": (0, 2048),
        "num_experts": (1, 4096),
        "num_experts_per_tok": (1, 4096),
        "num_global_key_value_heads": (1, 4096),
        "num_hidden_groups": _LAYERS,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": (0, 4096),
        "num_kv_shared_layers": (0, 2048),
        "num_labels": (1, 2**16),
        "num_local_experts": (0, 4096),
        "num_mel_bins": (1, 1024),
        "original_max_position_embeddings": (2, _TOKENS[1]),
        "out_features": _INNER_WIDTH,
        "pad_token_id": _TOKEN_ID,
        "patch_size": _PIXELS,
        "depth": _LAYERS,
        "embed_dim": _WIDTH,
        "embedding_size": _WIDTH,
        "mlp_ratio": (1, 1024),
        "in_channels": (1, 16),
        "max_pixels": (1, 2**31 - 1),
        "merge_size": (1, 64),
        "min_pixels": (1, 2**31 - 1),
        "mm_tokens_per_image": (1, 2**16),
        "num_heads": (1, 4096),
        "num_position_embeddings": (1, 2**20),
        "out_hidden_size": _WIDTH,
        "output_dim": _WIDTH,
        "max_soft_tokens": (1, 2**16),
        "pooling_kernel_size": (1, 64),
        "pooler_hidden_size": _WIDTH,
        "position_buckets": (-1, 2**16),
        "position_embedding_size": (1, 2**20),
        "pan_and_scan_max_num_crops": (1, 64),
        "pan_and_scan_min_crop_size": _PIXELS,
        "projection_dim": _WIDTH,
        "projection_size": _WIDTH,
        "prev_sot_token_id": _TOKEN_ID,
        "sampling_rate": _SAMPLES,
        "spatial_merge_size": (1, 64),
        "temporal_patch_size": (1, 64),
        "window_size": _PIXELS,
        "relative_attention_num_buckets": (1, 2**16),
        "resample": (0, 5),
        "longest_edge": _PIXELS,
        "max_patches": (1, 4096),
        "min_patches": (1, 4096),
        "scale_factor": (1, 64),
        "shared_expert_intermediate_size": _INNER_WIDTH,
        "shared_intermediate_size": _INNER_WIDTH,
        "shortest_edge": _PIXELS,
        "sliding_window": (-1, 2**63 - 1),
        "sliding_window_pattern": _ANY,
        "sliding_window_size": (-1, 2**63 - 1),
        "top_k_experts": (1, 4096),
        "true_token_id": _TOKEN_ID,
        "type_vocab_size": (0, 2**16),
        "vision_feature_layer": (-2048, 2048),
        "vocab_size": (1, 2**24),
        "vocab_size_per_layer_input": (1, 2**24),
        "width": _PIXELS,
    }
)

_EPSILON = (1e-30, 1.0)
_FACTOR = (1e-6, 1e6)
_SCALE = (1e-9, 1e9)
_THETA = (2.0, 1e15)

#: Inclusive bounds; the elements of lists have those of the list's name.
NUMBERS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "pan_and_scan_min_ratio_to_activate": (1.0, 1024.0),
        "attention_factor": _FACTOR,
        "attention_multiplier": _SCALE,
        "attn_logit_softcapping": _SCALE,
        "beta_fast": _FACTOR,
        "beta_slow": _FACTOR,
        "block_ffn_dim_multiplier": _FACTOR,
        "downsample_ratio": (1 / 64, 1.0),
        "embedding_multiplier": _SCALE,
        "factor": _FACTOR,
        "final_logit_softcapping": _SCALE,
        "global_rope_theta": _THETA,
        "high_freq_factor": _FACTOR,
        "layer_norm_eps": _EPSILON,
        "layer_norm_epsilon": _EPSILON,
        "local_rope_theta": _THETA,
        "logit_scale": _SCALE,
        "logits_scaling": _SCALE,
        "long_factor": _FACTOR,
        "low_freq_factor": _FACTOR,
        "mscale": _FACTOR,
        "mscale_all_dim": _FACTOR,
        "norm_eps": _EPSILON,
        "norm_epsilon": _EPSILON,
        "partial_rotary_factor": _FACTOR,
        "position_embedding_base": _THETA,
        "query_pre_attn_scalar": _SCALE,
        "residual_multiplier": _SCALE,
        "image_mean": (1e-9, 1.0),
        "image_std": (1e-9, 255.0),
        "rescale_factor": (1e-9, 1.0),
        "rms_norm_eps": _EPSILON,
        "routed_scaling_factor": _SCALE,
        "rope_local_base_freq": _THETA,
        "rope_theta": _THETA,
        "rotary_emb_base": _THETA,
        "rotary_emb_fraction": (1e-6, 1.0),
        "rotary_pct": (1e-6, 1.0),
        "short_factor": _FACTOR,
        "swiglu_alpha": _FACTOR,
        "swiglu_limit": _FACTOR,
    }
)

MAX_LIST_LENGTH: Final = 1 << 16
#: Experts of all layers; DeepSeek V3 has 14,848.
MAX_EXPERT_MATRICES: Final = 1 << 17
