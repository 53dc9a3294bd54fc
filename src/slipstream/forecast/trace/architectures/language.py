"""Published sizes of language models: GPT, Llama, MPT."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from slipstream.forecast.trace.architectures.transformer import Decoder, TransformerSize

_gpt = partial(TransformerSize, vocabulary=50257)
_gpt3 = partial(_gpt, positions=2048, dropout=0.0)
_mpt = partial(TransformerSize, vocabulary=50368, positions=2048, dropout=0.0)
_llama = partial(TransformerSize, gated=True, tied=False, dropout=0.0)
_llama2 = partial(_llama, vocabulary=32000, positions=4096)
_llama3 = partial(_llama, vocabulary=128256, positions=8192, key_value_heads=8)

# Radford et al., 2019. "Language Models are Unsupervised Multitask Learners", table 2.
GPT2 = {
    "gpt2": _gpt(hidden=768, layers=12, heads=12),
    "gpt2-medium": _gpt(hidden=1024, layers=24, heads=16),
    "gpt2-large": _gpt(hidden=1280, layers=36, heads=20),
    "gpt2-xl": _gpt(hidden=1600, layers=48, heads=25),
}

# Brown et al., 2020, arXiv 2005.14165, table 2.1, with two corrections, because the printed heads
# do not divide the printed widths: 1.3B has 16 heads instead of 24, and 13B has width 5120 instead
# of 5140. All attention is full, not sparse.
GPT3 = {
    "gpt3-125m": _gpt3(hidden=768, layers=12, heads=12),
    "gpt3-350m": _gpt3(hidden=1024, layers=24, heads=16),
    "gpt3-760m": _gpt3(hidden=1536, layers=24, heads=16),
    "gpt3-1.3b": _gpt3(hidden=2048, layers=24, heads=16),
    "gpt3-2.7b": _gpt3(hidden=2560, layers=32, heads=32),
    "gpt3-6.7b": _gpt3(hidden=4096, layers=32, heads=32),
    "gpt3-13b": _gpt3(hidden=5120, layers=40, heads=40),
    "gpt3-175b": _gpt3(hidden=12288, layers=96, heads=96),
}

# Touvron et al., 2023, arXiv 2307.09288. The products of `Decoder` have biases and those of Llama
# have none; the biases are at most 0.03 % of the parameters.
LLAMA2 = {
    "llama2-7b": _llama2(hidden=4096, layers=32, heads=32, inner=11008),
    "llama2-13b": _llama2(hidden=5120, layers=40, heads=40, inner=13824),
    "llama2-70b": _llama2(hidden=8192, layers=80, heads=64, inner=28672, key_value_heads=8),
}

# Grattafiori et al., 2024, arXiv 2407.21783, table 3.
LLAMA3 = {
    "llama3-8b": _llama3(hidden=4096, layers=32, heads=32, inner=14336),
    "llama3-70b": _llama3(hidden=8192, layers=80, heads=64, inner=28672),
    "llama3-405b": _llama3(hidden=16384, layers=126, heads=128, inner=53248),
}

# github.com/mosaicml/llm-foundry, scripts/train/benchmarking. Position embeddings are learned, so
# longer sequences need more parameters.
MPT = {
    "mpt-125m": _mpt(hidden=768, layers=12, heads=12),
    "mpt-350m": _mpt(hidden=1024, layers=24, heads=16),
    "mpt-760m": _mpt(hidden=1536, layers=24, heads=12),
    "mpt-1b": _mpt(hidden=2048, layers=24, heads=16),
    "mpt-3b": _mpt(hidden=2560, layers=32, heads=20),
    "mpt-7b": _mpt(hidden=4096, layers=32, heads=32),
    "mpt-13b": _mpt(hidden=5120, layers=40, heads=40),
    "mpt-30b": _mpt(hidden=7168, layers=48, heads=56),
    "mpt-70b": _mpt(hidden=8192, layers=80, heads=64),
}

SIZES = GPT2 | GPT3 | LLAMA2 | LLAMA3 | MPT


def language_model(name: str, **changes: Any) -> Decoder:
    """Return a language model of published dimensions.

    Args:
        name: Key of `SIZES`.
        changes: Fields to replace in the model's `TransformerSize`, such as positions=8192.
    """
    return Decoder(replace(SIZES[name], **changes))
