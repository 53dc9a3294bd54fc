"""Models of the T5 family, whose encoder reads text and whose decoder writes text.

Shapes: b is the batch size, t tokens, s attended tokens, c hidden size, h heads, d elements of a
    head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

# Tokens that the decoder writes per token that the encoder reads, in the pretraining of T5.
WRITTEN = 114 / 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSize:
    """Dimensions of an encoder and a decoder.

    Args:
        hidden: Hidden size, the number of elements per token.
        layers: Number of blocks of the encoder.
        decoder_layers: Number of blocks of the decoder.
        heads: Number of attention heads.
        head: Number of elements of a head; all heads together may have more elements than a token.
        inner: Number of elements per token inside the feed-forward part.
        vocabulary: Number of tokens in the vocabulary.
        buckets: Number of buckets of distances between tokens; each bucket has a bias per head
            (default 32).
        gated: Whether the feed-forward part multiplies the results of two linear layers (default
            False).
        tied: Whether the embedding and the last product share their weights (default True).
        dropout: Dropout probability, 0 to 1 (default 0.1).
    """

    hidden: int
    layers: int
    decoder_layers: int
    heads: int
    head: int
    inner: int
    vocabulary: int
    buckets: int = 32
    gated: bool = False
    tied: bool = True
    dropout: float = 0.1


class TextToText(nn.Module):
    """T5 (Raffel et al., 2020, arXiv 1910.10683).

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TextSize) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.encoder = Stack(size, size.layers, writes=False)
        self.decoder = Stack(size, size.decoder_layers, writes=True)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        if size.tied:
            self.head.weight = self.tokens.weight

    def forward(self, read: Tensor, written: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            read: Token ids that the encoder reads, int64 (b, s).
            written: Token ids that the decoder predicts, int64 (b, t).
        """
        memory = self.encoder(self.tokens(read), None)
        scores = self.head(self.decoder(self.tokens(written), memory))
        return functional.cross_entropy(scores.flatten(0, 1).float(), written.flatten())


class Stack(nn.Module):
    """Blocks that share a table of attention biases, with an entry per distance of two tokens.

    Args:
        size: Dimensions of the model.
        layers: Number of blocks.
        writes: Whether the blocks are those of the decoder. In the decoder, a token attends only to
            itself, to earlier tokens and to the output of the encoder.
    """

    def __init__(self, size: TextSize, layers: int, *, writes: bool) -> None:
        super().__init__()
        self.writes, self.buckets = writes, size.buckets
        self.distances = nn.Embedding(size.buckets, size.heads)
        self.blocks = nn.ModuleList(_TextBlock(size, writes=writes) for _ in range(layers))
        self.norm, self.drop = nn.RMSNorm(size.hidden), nn.Dropout(size.dropout)

    def forward(self, x: Tensor, memory: Tensor | None) -> Tensor:
        """Return the hidden states after the last norm, (b, t, c) like `x`.

        Args:
            x: Embeddings of the tokens (b, t, c).
            memory: Output of the encoder (b, s, c); None in the encoder itself.
        """
        places = torch.arange(x.shape[1], device=x.device)
        apart = (places - places.unsqueeze(1)).clamp(0, self.buckets - 1)
        biases = self.distances(apart).permute(2, 0, 1)
        if self.writes:
            biases = biases.masked_fill(places > places.unsqueeze(1), -math.inf)
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, biases, memory)
        return self.drop(self.norm(x))


class _TextBlock(nn.Module):
    def __init__(self, size: TextSize, *, writes: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(size.hidden) for _ in range(2 + writes))
        self.own = _Attention(size)
        self.cross = _Attention(size) if writes else None
        self.mlp = _Inner(size)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, biases: Tensor, memory: Tensor | None) -> Tensor:
        norms: Iterator[nn.Module] = iter(self.norms)
        normed = next(norms)(x)
        x = x + self.drop(self.own(normed, normed, biases))
        if self.cross is not None:
            x = x + self.drop(self.cross(next(norms)(x), memory, None))
        return x + self.drop(self.mlp(next(norms)(x)))


class _Attention(nn.Module):
    def __init__(self, size: TextSize) -> None:
        super().__init__()
        self.head = size.head
        linear = partial(nn.Linear, size.hidden, size.heads * size.head, bias=False)
        self.q, self.k, self.v = linear(), linear(), linear()
        self.proj = nn.Linear(size.heads * size.head, size.hidden, bias=False)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, memory: Tensor, biases: Tensor | None) -> Tensor:
        q, k, v = (
            product(source).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for product, source in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = q @ k.transpose(-1, -2)
        if biases is not None:
            scores = scores + biases
        mixed = self.drop(scores.softmax(-1)) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))


class _Inner(nn.Module):
    def __init__(self, size: TextSize) -> None:
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.gate = linear(size.hidden, size.inner) if size.gated else None
        self.up, self.down = linear(size.hidden, size.inner), linear(size.inner, size.hidden)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.drop(functional.relu(self.up(x))))
        return self.down(self.drop(functional.gelu(self.gate(x)) * self.up(x)))
