"""Decoders that predict the next token; `CausalSize` has the options in which models differ.

Shapes: b is the batch size, t tokens, c hidden size, h heads, d elements of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.experts import Experts

Activation = Literal["gelu", "relu", "silu"]
_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalSize:
    """Dimensions and options of a decoder.

    Args:
        hidden: Hidden size, the number of elements per token.
        layers: Number of blocks.
        heads: Number of attention heads.
        key_value_heads: Number of heads of keys and values; each is shared by a group of query
            heads.
        head: Number of elements of a head.
        inner: Number of elements per token inside the feed-forward part.
        vocabulary: Number of tokens in the vocabulary.
        positions: Number of learned position embeddings (default 0: none).
        root_mean_square: Whether norms are RMS norms, which subtract no mean and have no bias
            (default False).
        norm_bias: Whether layer norms have a bias (default True).
        gated: Whether the feed-forward part multiplies the results of two linear layers, as in
            SwiGLU (default False).
        activation: Activation of the feed-forward part (default "gelu").
        merged: Whether one product computes queries, keys and values (default False).
        qkv_bias: Whether the products that compute queries, keys and values have a bias (default
            False).
        out_bias: Whether the product after attention has a bias (default False).
        mlp_bias: Whether the products of the feed-forward part have a bias (default False).
        head_bias: Whether the last product, which scores the vocabulary, has a bias (default
            False).
        turned: Share of each head that rotary position embeddings rotate (default 0: none).
        parallel: Whether attention and feed-forward part of a block have the same input; otherwise
            the feed-forward part reads the result of attention (default False).
        norms: Number of norms of a block (default 2). With one norm, attention and the feed-forward
            part are parallel and share the norm.
        experts: Number of experts (feed-forward parts) of a block, of which each token uses
            `active` (default 1).
        active: Number of experts that each token uses (default 1).
        tied: Whether the embedding and the last product share their weights (default False).
        dropout: Dropout probability after the embedding and after each part of a block (default 0).
    """

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    inner: int
    vocabulary: int
    positions: int = 0
    root_mean_square: bool = False
    norm_bias: bool = True
    gated: bool = False
    activation: Activation = "gelu"
    merged: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    turned: float = 0.0
    parallel: bool = False
    norms: int = 2
    experts: int = 1
    active: int = 1
    tied: bool = False
    dropout: float = 0.0

    def norm(self) -> nn.Module:
        """Return a new RMS norm or layer norm for the hidden states."""
        if self.root_mean_square:
            return nn.RMSNorm(self.hidden)
        return nn.LayerNorm(self.hidden, bias=self.norm_bias)


class CausalDecoder(nn.Module):
    """A causal language model: an embedding, blocks, and a product that scores the vocabulary.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: CausalSize) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.places = nn.Embedding(size.positions, size.hidden) if size.positions else None
        self.drop = nn.Dropout(size.dropout)
        self.blocks = nn.ModuleList(CausalBlock(size) for _ in range(size.layers))
        self.norm = size.norm()
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=size.head_bias)
        if size.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean loss of predicting `tokens`, which are token ids, int64 (b, t)."""
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places.weight[: tokens.shape[1]]
        x = self.drop(x)
        angles = _angles(x, self.size) if self.size.turned else None
        for block in self.blocks:
            x = block(x, angles)
        scores = self.head(self.norm(x))
        return functional.cross_entropy(scores.flatten(0, 1).float(), tokens.flatten())


class CausalBlock(nn.Module):
    """Attention and a feed-forward part, with residual connections and one or two norms.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: CausalSize) -> None:
        super().__init__()
        self.parallel = size.parallel
        self.norm1 = size.norm()
        self.norm2 = size.norm() if size.norms == 2 else None
        self.attention = CausalAttention(size)
        if size.experts > 1:
            self.mlp = Experts(size.hidden, size.inner, size.experts, size.active)
        else:
            self.mlp = Inner(size)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the hidden states after the block, (b, t, c) like `x`.

        Args:
            x: Hidden states (b, t, c).
            angles: Cosines and sines of rotary embeddings (t, rotated elements of a head), or None.
        """
        normed = self.norm1(x)
        mixed = self.drop(self.attention(normed, angles))
        if self.parallel:
            other = normed if self.norm2 is None else self.norm2(x)
            return x + mixed + self.drop(self.mlp(other))
        x = x + mixed
        return x + self.drop(self.mlp(x if self.norm2 is None else self.norm2(x)))


class CausalAttention(nn.Module):
    """Causal multi-head attention in one kernel.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: CausalSize) -> None:
        super().__init__()
        self.size = size
        self.counts = [size.heads, size.key_value_heads, size.key_value_heads]
        counts = [sum(self.counts)] if size.merged else self.counts
        linear = partial(nn.Linear, size.hidden, bias=size.qkv_bias)
        self.qkv = nn.ModuleList(linear(count * size.head) for count in counts)
        self.proj = nn.Linear(size.heads * size.head, size.hidden, bias=size.out_bias)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the result of attention, (b, t, c).

        Args:
            x: Hidden states (b, t, c).
            angles: Cosines and sines of rotary embeddings (t, rotated elements of a head), or None.
        """
        heads = [product(x).unflatten(-1, (-1, self.size.head)) for product in self.qkv]
        if self.size.merged:
            heads = heads[0].split(self.counts, dim=2)
        q, k, v = (part.transpose(1, 2) for part in heads)
        if angles is not None:
            q, k = turned(q, angles), turned(k, angles)
        grouped = self.size.key_value_heads != self.size.heads
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Inner(nn.Module):
    """The feed-forward part: two linear layers, or three linear layers with a gate.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: CausalSize) -> None:
        super().__init__()
        linear = partial(nn.Linear, bias=size.mlp_bias)
        self.activation = _ACTIVATIONS[size.activation]
        self.gate = linear(size.hidden, size.inner) if size.gated else None
        self.up = linear(size.hidden, size.inner)
        self.down = linear(size.inner, size.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return new hidden states, (b, t, c) like `x`."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


def _angles(x: Tensor, size: CausalSize) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of shape (t, rotated elements of a head) that all blocks use."""
    width = int(size.head * size.turned) // 2 * 2
    exponents = torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width
    places = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
    half = places.unsqueeze(1) * torch.pow(10000.0, -exponents)
    angles = torch.cat([half, half], dim=1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def turned(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Return queries or keys after rotation by their positions (RoPE, arXiv 2104.09864).

    As in the library `transformers`, the computation takes several operators, not one kernel.

    Args:
        x: Queries or keys (b, h, t, d).
        angles: Cosines and sines (t, e) with e <= d; elements of a head after the first e do not
            change.
    """
    cosines, sines = (part.to(x.dtype) for part in angles)
    width = cosines.shape[-1]
    head = x if width == x.shape[-1] else x[..., :width]
    first, second = head.chunk(2, dim=-1)
    done = head * cosines + torch.cat([-second, first], dim=-1) * sines
    return done if head is x else torch.cat([done, x[..., width:]], dim=-1)
