"""Dimensions of decoders from Hugging Face configs, with one function per `model_type`.

If a config leaves out a number, the default of the library `transformers` applies; a number without
a default is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slipstream.errors import ConfigError
from slipstream.forecast.trace.architectures.causal import CausalSize
from slipstream.forecast.trace.config import Config


def _gpt2(config: Config) -> CausalSize:
    hidden, heads = config.number("n_embd"), config.number("n_head")
    return CausalSize(
        hidden=hidden, layers=config.number("n_layer"), heads=heads, key_value_heads=heads,
        head=hidden // heads, inner=config.number("n_inner", 4 * hidden),
        vocabulary=config.number("vocab_size"), positions=config.number("n_positions"),
        merged=True, qkv_bias=True, out_bias=True, mlp_bias=True,
        tied=config.flag("tie_word_embeddings", True), dropout=config.share("resid_pdrop", 0.1),
    )  # fmt: skip


def _mpt(config: Config) -> CausalSize:
    hidden, heads = config.number("d_model"), config.number("n_heads")
    attention, biased = config.inside("attn_config"), not config.flag("no_bias", True)
    learned = config.flag("learned_pos_emb", True) and not attention.flag("alibi", True)
    return CausalSize(
        hidden=hidden, layers=config.number("n_layers"), heads=heads, head=hidden // heads,
        key_value_heads=attention.number("kv_n_heads", heads),
        inner=config.number("expansion_ratio", 4) * hidden, vocabulary=config.number("vocab_size"),
        positions=config.number("max_seq_len") if learned else 0, norm_bias=biased, merged=True,
        qkv_bias=biased, out_bias=biased, mlp_bias=biased, tied=True,
        dropout=config.share("resid_pdrop", 0.0),
    )  # fmt: skip


def _common(config: Config, **more: Any) -> CausalSize:
    """Return a decoder's dimensions from common keys of a config; `more` overrides dimensions."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    fields: dict[str, Any] = {
        "hidden": hidden,
        "layers": config.number("num_hidden_layers"),
        "heads": heads,
        "key_value_heads": config.number("num_key_value_heads", heads),
        "head": config.number("head_dim", hidden // heads),
        "vocabulary": config.number("vocab_size"),
        "dropout": config.share("hidden_dropout", 0.0),
    }
    return CausalSize(**(fields | more))


def _gpt_neox(config: Config) -> CausalSize:
    biased = config.flag("attention_bias", True)
    return _common(
        config, inner=config.number("intermediate_size"), merged=True, qkv_bias=biased,
        out_bias=biased, mlp_bias=True, turned=config.share("rotary_pct", 0.25),
        parallel=config.flag("use_parallel_residual", True),
        tied=config.flag("tie_word_embeddings", False),
    )  # fmt: skip


def _opt(config: Config) -> CausalSize:
    width = config.number("hidden_size")
    embedded = config.number("word_embed_proj_dim", width)
    if embedded != width:
        raise ConfigError(
            f"{config.origin}: word_embed_proj_dim is {embedded} and hidden_size is {width}; only"
            " equal widths can be forecast"
        )
    biased = config.flag("enable_bias", True)
    # Two positions are reserved for padding.
    return _common(
        config, inner=config.number("ffn_dim"), activation="relu", qkv_bias=biased, out_bias=biased,
        mlp_bias=biased, positions=config.number("max_position_embeddings") + 2,
        tied=config.flag("tie_word_embeddings", True), dropout=config.share("dropout", 0.1),
    )  # fmt: skip


def _llama(config: Config, **more: Any) -> CausalSize:
    fields: dict[str, Any] = {
        "inner": config.number("intermediate_size"),
        "root_mean_square": True,
        "gated": True,
        "activation": "silu",
        "qkv_bias": config.flag("attention_bias", False),
        "out_bias": config.flag("attention_bias", False),
        "mlp_bias": config.flag("mlp_bias", False),
        "turned": 1.0,
        "tied": config.flag("tie_word_embeddings", False),
    }
    return _common(config, **(fields | more))


def _mistral(config: Config, **more: Any) -> CausalSize:
    return _llama(config, key_value_heads=config.number("num_key_value_heads", 8), **more)


def _mixtral(config: Config) -> CausalSize:
    experts, active = config.number("num_local_experts"), config.number("num_experts_per_tok")
    if active > experts:
        raise ConfigError(
            f"{config.origin}: num_experts_per_tok is {active}, but there are {experts} experts"
        )
    return _mistral(config, experts=experts, active=active)


def _qwen2(config: Config) -> CausalSize:
    return _llama(config, qkv_bias=True, out_bias=False)


def _gemma(config: Config) -> CausalSize:
    tied = config.flag("tie_word_embeddings", True)
    return _llama(config, head=config.number("head_dim", 256), activation="gelu", tied=tied)


def _phi(config: Config) -> CausalSize:
    return _common(
        config, inner=config.number("intermediate_size"), qkv_bias=True, out_bias=True,
        mlp_bias=True, head_bias=True, turned=config.share("partial_rotary_factor", 0.5),
        parallel=True, norms=1, tied=config.flag("tie_word_embeddings", False),
        dropout=config.share("resid_pdrop", 0.0),
    )  # fmt: skip


# Functions by model_type, each with the config's key for the maximum number of tokens.
DECODERS: Mapping[str, tuple[Callable[[Config], CausalSize], str]] = {
    "gpt2": (_gpt2, "n_positions"),
    "gpt_neox": (_gpt_neox, "max_position_embeddings"),
    "opt": (_opt, "max_position_embeddings"),
    "mpt": (_mpt, "max_seq_len"),
    "llama": (_llama, "max_position_embeddings"),
    "mistral": (_mistral, "max_position_embeddings"),
    "mixtral": (_mixtral, "max_position_embeddings"),
    "qwen2": (_qwen2, "max_position_embeddings"),
    "gemma": (_gemma, "max_position_embeddings"),
    "phi": (_phi, "max_position_embeddings"),
}
