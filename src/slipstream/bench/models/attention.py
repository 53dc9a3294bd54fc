"""Transformers: the original Transformer, BERT-base and GPT-2.

Sources: Vaswani et al., arXiv 1706.03762 (the base model, with a shared vocabulary of 37,000
words); Devlin et al., arXiv 1810.04805 (base, uncased, with the pooler and without the heads of the
pre-training tasks); Radford et al. 2019 (the smallest model, with 124 M parameters).
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.bench.models.layers import (
    ModelLayer,
    ReplayModel,
    embedding,
    linear,
    normalisation,
    table,
)


def bert_base() -> ReplayModel:
    """Return BERT-base with 109,482,240 parameters.

    The embedding is the first layer, so its gradient is ready last, and the next step needs it
    first.
    """
    width, tokens = 768, 128
    words = table("embedding.words", (30522, width), rows_per_sample=tokens)
    places = table("embedding.places", (512, width))
    segments = table("embedding.segments", (2, width))
    layers = [embedding("embedding", [words, places, segments])]
    layers.append(normalisation("embedding.norm", width))
    for index in range(12):
        layers += _encoder_layer(f"layer{index}", (width, 4 * width), tokens, bias=True)
    layers.append(linear("pooler", (width, width)))
    return ReplayModel(
        name="bert-base", layers=tuple(layers), batch=64, sample=f"a sequence of {tokens} tokens"
    )


def gpt2() -> ReplayModel:
    """Return GPT-2 with 124,439,808 parameters; its head shares the weights of the embedding."""
    width, tokens, vocabulary = 768, 1024, 50257
    words = table("embedding.words", (vocabulary, width))
    layers = [embedding("embedding", [words, table("embedding.places", (1024, width))])]
    for index in range(12):
        layers += _gpt2_layer(f"layer{index}", width, tokens)
    layers.append(normalisation("norm", width))
    layers.append(_tied_head(words.name, (vocabulary, width), tokens))
    return ReplayModel(
        name="gpt2", layers=tuple(layers), batch=8, sample=f"a sequence of {tokens} tokens"
    )


def transformer() -> ReplayModel:
    """Return Transformer base with 63,045,632 parameters.

    Both languages and the head share one embedding table. The head uses every row of the table, so
    its gradient is dense.
    """
    width, inner, tokens, vocabulary = 512, 2048, 32, 37000
    words = table("embedding", (vocabulary, width))
    layers = [embedding("embedding", [words])]
    for index in range(6):
        layers += _encoder_layer(f"encoder{index}", (width, inner), tokens, bias=False)
    layers.append(ModelLayer(name="decoder.embedding", parameters=(), flops=0, tied=(words.name,)))
    for index in range(6):
        layers += _decoder_layer(f"decoder{index}", (width, inner), tokens)
    layers.append(_tied_head(words.name, (vocabulary, width), tokens))
    sample = f"a pair of sentences of {tokens} tokens"
    return ReplayModel(name="transformer", layers=tuple(layers), batch=96, sample=sample)


def _encoder_layer(
    name: str, widths: tuple[int, int], tokens: int, *, bias: bool
) -> Iterator[ModelLayer]:
    yield from _attention(f"{name}.attention", widths[0], tokens, bias=bias)
    yield from _feed_forward(name, widths, tokens)


def _decoder_layer(name: str, widths: tuple[int, int], tokens: int) -> Iterator[ModelLayer]:
    yield from _attention(f"{name}.attention", widths[0], tokens, bias=False)
    yield from _attention(f"{name}.cross", widths[0], tokens, bias=False)
    yield from _feed_forward(name, widths, tokens)


def _attention(name: str, width: int, tokens: int, *, bias: bool) -> Iterator[ModelLayer]:
    """Yield the linear projections of attention, and then its normalisation.

    The FLOPs of the attention scores and of the weighted sums are counted in the last projection.
    """
    for part in ("query", "key", "value"):
        yield linear(f"{name}.{part}", (width, width), tokens=tokens, bias=bias)
    yield linear(
        f"{name}.out",
        (width, width),
        tokens=tokens,
        bias=bias,
        more_flops=_score_flops(width, tokens),
    )
    yield normalisation(f"{name}.norm", width)


def _feed_forward(name: str, widths: tuple[int, int], tokens: int) -> Iterator[ModelLayer]:
    width, inner = widths
    yield linear(f"{name}.up", (width, inner), tokens=tokens)
    yield linear(f"{name}.down", (inner, width), tokens=tokens)
    yield normalisation(f"{name}.norm", width)


def _gpt2_layer(name: str, width: int, tokens: int) -> Iterator[ModelLayer]:
    yield normalisation(f"{name}.attention.norm", width)
    yield linear(f"{name}.attention.in", (width, 3 * width), tokens=tokens)
    scores = _score_flops(width, tokens)
    yield linear(f"{name}.attention.out", (width, width), tokens=tokens, more_flops=scores)
    yield normalisation(f"{name}.norm", width)
    yield linear(f"{name}.up", (width, 4 * width), tokens=tokens)
    yield linear(f"{name}.down", (4 * width, width), tokens=tokens)


def _score_flops(width: int, tokens: int) -> int:
    """Return the FLOPs of the attention scores and weighted sums, including masked scores."""
    return 4 * tokens**2 * width


def _tied_head(words: str, shape: tuple[int, int], tokens: int) -> ModelLayer:
    rows, width = shape
    return ModelLayer(name="head", parameters=(), flops=2 * rows * width * tokens, tied=(words,))
