"""Architectures with the dimensions that a config.json of Hugging Face describes.

The modules are those of `slipstream.forecast.trace.architectures`; neither the library
`transformers` nor any weights are needed. Attention with a sliding window, like Mistral's, is
modelled as attention to the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from slipstream.errors import ConfigError, UsageError
from slipstream.forecast.trace.architectures import batches
from slipstream.forecast.trace.architectures.causal import CausalDecoder
from slipstream.forecast.trace.architectures.encoders import BertPretraining
from slipstream.forecast.trace.architectures.names import Architecture
from slipstream.forecast.trace.architectures.sized import MaskedTokens, VisionTransformer
from slipstream.forecast.trace.architectures.text_to_text import WRITTEN, TextSize, TextToText
from slipstream.forecast.trace.architectures.transformer import TransformerSize
from slipstream.forecast.trace.config import Config, read
from slipstream.forecast.trace.decoders import DECODERS

# Number of tokens in a sequence if the user gives no number and the config allows more. Llama 3 was
# pretrained at this sequence length (arXiv 2407.21783).
MOST_TOKENS = 8192


def architecture(path: Path, tokens: int | None = None) -> Architecture:
    """Return the architecture that a config describes, named after the folder of the config.

    Args:
        path: Path of a config.json or its folder.
        tokens: Number of tokens in a sequence (default None: all positions of the model, at most
            8192).

    Raises:
        ConfigError: The file is unreadable, has an unknown `model_type`, or lacks a required
            number.
        UsageError: The model has fewer positions than `tokens`, or does not read text.
    """
    config = read(path)
    name = path.resolve().name if path.is_dir() else path.resolve().parent.name
    family = _FAMILIES.get(config.model_type)
    if family is not None:
        return family(name, config, tokens)
    if config.model_type in DECODERS:
        return _decoder(name, config, tokens)
    types = ", ".join(KNOWN)
    raise ConfigError(
        f"{config.origin}: model_type is {config.model_type!r}; known are {types}; for any other "
        "model, name a function that makes it: package.module:function"
    )


def _decoder(name: str, config: Config, tokens: int | None) -> Architecture:
    size_of, places = DECODERS[config.model_type]
    size = size_of(config)
    # The first configs of Llama lack this field.
    most = config.number(places, size.positions or 2048)
    length = _length(config, tokens, most, learned=size.positions > 0)
    inputs = partial(batches.tokens, length=length)
    return _text(name, partial(CausalDecoder, size), inputs, length)


def _length(config: Config, tokens: int | None, places: int, *, learned: bool) -> int:
    """Return the number of tokens in a sequence; raise an error beyond the learned positions."""
    if tokens is None:
        return min(places, MOST_TOKENS)
    if learned and tokens > places:
        raise UsageError(f"tokens is {tokens}, but {config.origin} has only {places} positions")
    return tokens


def _text(
    name: str,
    make: Callable[..., nn.Module],
    inputs: Callable[..., tuple[Tensor, ...]],
    length: int,
) -> Architecture:
    return Architecture(name, (), make, inputs, "sequence", f"{length} tokens of a sequence")


def _bert(name: str, config: Config, tokens: int | None) -> Architecture:
    size = _encoder_size(config)
    length = _length(config, tokens, size.positions, learned=True)
    # BERT's authors predict 20 of 128 tokens.
    inputs = partial(batches.masked, length=length, predictions=max(1, length * 20 // 128))
    return _text(name, partial(BertPretraining, size), inputs, length)


def _roberta(name: str, config: Config, tokens: int | None) -> Architecture:
    size = _encoder_size(config)
    # Two positions are reserved for padding.
    length = _length(config, tokens, size.positions - 2, learned=True)
    return _text(name, partial(MaskedTokens, size), partial(_segments, length=length), length)


def _encoder_size(config: Config) -> TransformerSize:
    return TransformerSize(
        hidden=config.number("hidden_size"),
        layers=config.number("num_hidden_layers"),
        heads=config.number("num_attention_heads"),
        inner=config.number("intermediate_size"),
        vocabulary=config.number("vocab_size"),
        positions=config.number("max_position_embeddings"),
        dropout=config.share("hidden_dropout_prob", 0.1),
    )


def _distilbert(name: str, config: Config, tokens: int | None) -> Architecture:
    size = TransformerSize(
        hidden=config.number("dim"),
        layers=config.number("n_layers"),
        heads=config.number("n_heads"),
        inner=config.number("hidden_dim"),
        vocabulary=config.number("vocab_size"),
        positions=config.number("max_position_embeddings"),
        dropout=config.share("dropout", 0.1),
    )
    length = _length(config, tokens, size.positions, learned=True)
    return _text(name, partial(MaskedTokens, size), partial(_segments, length=length), length)


def _segments(batch: int, *, length: int) -> tuple[Tensor, ...]:
    (tokens,) = batches.tokens(batch, length=length)
    return (tokens, tokens)


def _vit(name: str, config: Config, tokens: int | None) -> Architecture:
    if tokens is not None:
        raise UsageError(
            f"tokens is {tokens}, but {config.origin} describes a model that reads images"
        )
    size = TransformerSize(
        hidden=config.number("hidden_size"),
        layers=config.number("num_hidden_layers"),
        heads=config.number("num_attention_heads"),
        inner=config.number("intermediate_size"),
        dropout=config.share("hidden_dropout_prob", 0.0),
    )
    side, channels = config.number("image_size"), config.number("num_channels", 3)
    make = partial(
        VisionTransformer,
        size,
        patch=config.number("patch_size"),
        side=side,
        channels=channels,
        num_classes=config.number("num_labels", config.count("id2label") or 2),
    )
    inputs = partial(_images, shape=(channels, side, side))
    return Architecture(name, (), make, inputs, "image", f"{side} pixels of a side")


def _images(batch: int, *, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (torch.zeros(batch, *shape),)


def _t5(name: str, config: Config, tokens: int | None) -> Architecture:
    layers = config.number("num_layers")
    size = TextSize(
        hidden=config.number("d_model"),
        layers=layers,
        decoder_layers=config.number("num_decoder_layers", layers),
        heads=config.number("num_heads"),
        head=config.number("d_kv"),
        inner=config.number("d_ff"),
        vocabulary=config.number("vocab_size"),
        buckets=config.number("relative_attention_num_buckets", 32),
        gated=config.text("feed_forward_proj", "relu").startswith("gated"),
        tied=config.flag("tie_word_embeddings", True),
        dropout=config.share("dropout_rate", 0.1),
    )
    length = tokens or config.number("n_positions", 512)
    return _text(name, partial(TextToText, size), partial(_read_and_written, length=length), length)


def _read_and_written(batch: int, *, length: int) -> tuple[Tensor, ...]:
    (read_,) = batches.tokens(batch, length=length)
    (written,) = batches.tokens(batch, length=max(1, int(length * WRITTEN)))
    return (read_, written)


_FAMILIES: Mapping[str, Callable[[str, Config, int | None], Architecture]] = {
    "bert": _bert,
    "roberta": _roberta,
    "distilbert": _distilbert,
    "vit": _vit,
    "t5": _t5,
}

KNOWN = (*DECODERS, *_FAMILIES)
