"""Building blocks of transformers, and the decoder of GPT and Llama."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSize:
    """Dimensions of a transformer.

    Args:
        hidden: Hidden size, the number of elements per token.
        layers: Number of blocks.
        heads: Number of attention heads.
        key_value_heads: Number of heads of keys and values (default 0: the number in `heads`).
        inner: Number of elements per token inside the feed-forward part (default 0: four times
            `hidden`).
        vocabulary: Number of tokens in the vocabulary.
        positions: Largest number of tokens in a sequence.
        gated: Whether the feed-forward part multiplies the results of two linear layers, as in
            SwiGLU (default False).
        fused: Whether attention is one kernel; otherwise scores are written to memory (default
            True).
        dropout: Dropout probability, 0 to 1 (default 0.1).
        tied: Whether the embedding and the last product share their weights (default True).
    """

    hidden: int
    layers: int
    heads: int
    key_value_heads: int = 0
    inner: int = 0
    vocabulary: int = 51200
    positions: int = 1024
    gated: bool = False
    fused: bool = True
    dropout: float = 0.1
    tied: bool = True

    @property
    def inner_width(self) -> int:
        """Number of elements per token inside the feed-forward part."""
        return self.inner or 4 * self.hidden


class SelfAttention(nn.Module):
    """Multi-head attention, causal or full.

    Args:
        size: Dimensions of the model.
        causal: Whether each token attends only to itself and to earlier tokens.
    """

    def __init__(self, size: TransformerSize, *, causal: bool) -> None:
        super().__init__()
        self.size, self.causal = size, causal
        self.head = size.hidden // size.heads
        self.shared = size.key_value_heads or size.heads
        self.qkv = nn.Linear(size.hidden, (size.heads + 2 * self.shared) * self.head)
        self.proj = nn.Linear(size.hidden, size.hidden)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of attention, (batch, tokens, hidden) like `x`."""
        batch, tokens, _ = x.shape
        parts = self.qkv(x).view(batch, tokens, -1, self.head).transpose(1, 2)
        q, k, v = parts.split([self.size.heads, self.shared, self.shared], dim=1)
        if self.size.fused:
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=self.causal, enable_gqa=self.shared != self.size.heads
            )
        else:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(self.head)
            mixed = self.drop(scores.softmax(-1)) @ v
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them, or three linear layers with a gate (SwiGLU).

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.gated = size.gated
        width = size.inner_width * (2 if size.gated else 1)
        self.up = nn.Linear(size.hidden, width)
        self.down = nn.Linear(size.inner_width, size.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return new hidden states, (batch, tokens, hidden) like `x`."""
        inner = self.up(x)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            return self.down(functional.silu(gate) * value)
        return self.down(functional.gelu(inner))


class PreNormBlock(nn.Module):
    """Attention and a feed-forward part, each after a norm, with residual connections.

    Args:
        size: Dimensions of the model.
        causal: Whether each token attends only to itself and to earlier tokens.
    """

    def __init__(self, size: TransformerSize, *, causal: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if size.gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(size.hidden), norm(size.hidden)
        self.attention = SelfAttention(size, causal=causal)
        self.mlp = FeedForward(size)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden states after the block, (batch, tokens, hidden) like `x`."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Decoder(nn.Module):
    """A causal language model of the GPT or Llama family.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        norm = nn.RMSNorm if size.gated else nn.LayerNorm
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.places = None if size.gated else nn.Embedding(size.positions, size.hidden)
        self.blocks = nn.ModuleList(PreNormBlock(size, causal=True) for _ in range(size.layers))
        self.norm = norm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        if size.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean loss of predicting `tokens`: token ids, int64 (batch, length)."""
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return functional.cross_entropy(scores.flatten(0, 1).float(), tokens.flatten())
