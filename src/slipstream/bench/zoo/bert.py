"""The encoder BERT-base, whose attention is written as matrix products and a softmax.

Shapes: b is the batch size, n the number of tokens, d the width 768, h the number of heads.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slipstream.bench.zoo.layers import settle

VOCABULARY = 30522
LENGTH = 128
LONGEST = 512
WIDTH = 768
NUM_HEADS = 12
NUM_LAYERS = 12
EPSILON = 1e-12
# Factors of random weights; see `bert_base`. Chosen by hand, not measured.
QUERY_GAIN = 3.0
OUTPUT_GAIN = 0.3


class Embedding(nn.Module):
    """Normalised sum of the embeddings of token, position and segment; the segment is always 0."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map int64 [b, n] to float32 [b, n, d]."""
        positions = self.positions.weight[: input_ids.shape[1]]
        return self.norm(self.symbols(input_ids) + positions + self.segments.weight[0])


class BertAttention(nn.Module):
    """Multi-head self-attention with separate matrices for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x_bnd: Tensor, mask: Tensor) -> Tensor:
        """Map float32 [b, n, d], with a mask [b, 1, 1, n] added to the scores, to [b, n, d]."""
        query, key, value = (
            _split(projected)
            for projected in (self.query(x_bnd), self.key(x_bnd), self.value(x_bnd))
        )
        scores_bhnn = query @ key.transpose(-1, -2) / math.sqrt(WIDTH / NUM_HEADS)
        mixed = (scores_bhnn + mask).softmax(dim=-1) @ value
        return self.output(mixed.transpose(1, 2).flatten(2))


class BertLayer(nn.Module):
    """Attention and a feed-forward network with GELU, each with shortcut and post-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = BertAttention()
        self.attention_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, x_bnd: Tensor, mask: Tensor) -> Tensor:
        """Map float32 [b, n, d] to the same shape; the mask is that of `BertAttention`."""
        x_bnd = self.attention_norm(x_bnd + self.attention(x_bnd, mask))
        return self.norm(x_bnd + self.feed_forward(x_bnd))


class Bert(nn.Module):
    """BERT: an embedding, twelve layers, and a pooler, which uses the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(BertLayer() for _ in range(NUM_LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map two int64 [b, n] to two float32: last hidden state [b, n, d], and pooled [b, d]."""
        lowest = torch.finfo(torch.float32).min
        mask = (1.0 - attention_mask[:, None, None, :].float()) * lowest
        x_bnd = self.embedding(input_ids)
        for layer in self.layers:
            x_bnd = layer(x_bnd, mask)
        return x_bnd, torch.tanh(self.pooler(x_bnd[:, 0]))


def bert_base() -> nn.Module:
    """Return BERT-base, which maps input_ids and attention_mask, int64 [1, 128], to two outputs.

    The outputs are the last hidden state, float32 [1, 128, 768], and the pooled state, float32 [1,
    768]. The network has 109,482,240 parameters and takes 11.17 GMAC. Source: Devlin et al., "BERT:
    Pre-training of Deep Bidirectional Transformers for Language Understanding" (2018).

    Query weights are scaled up, and output weights of attention are scaled down, with an effect
    like that of training. With plain random weights, all tokens become similar after a few layers
    (Dong et al., "Attention is Not All You Need", 2021).
    """
    model = settle(Bert)
    for module in model.modules():
        if isinstance(module, BertAttention):
            module.query.weight *= QUERY_GAIN
            module.output.weight *= OUTPUT_GAIN
    return model


def sentence(seed: int) -> dict[str, NDArray[np.int64]]:
    """Return random token ids [1, 128], and a mask that hides up to half of them at the end."""
    random = np.random.default_rng(seed)
    num_present = random.integers(LENGTH // 2, LENGTH, endpoint=True)
    return {
        "input_ids": random.integers(VOCABULARY, size=(1, LENGTH), dtype=np.int64),
        "attention_mask": (np.arange(LENGTH) < num_present).astype(np.int64)[np.newaxis],
    }


def _split(x_bnd: Tensor) -> Tensor:
    """Split the vectors [b, n, d] into heads: return [b, h, n, d/h]."""
    return x_bnd.reshape(-1, x_bnd.shape[1], NUM_HEADS, WIDTH // NUM_HEADS).transpose(1, 2)
