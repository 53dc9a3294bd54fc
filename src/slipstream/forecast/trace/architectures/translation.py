"""Transformers of languages: the one of translation, and Transformer-XL.

Shapes: b batch, h heads, t tokens, m tokens of memory, d numbers of a head.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.encoders import NormedBlock
from slipstream.forecast.trace.architectures.transformer import Attention, TransformerSize

TRANSFORMER_BIG = TransformerSize(
    hidden=1024, layers=6, heads=16, inner=4096, vocabulary=33708, fused=False
)
TRANSFORMER_XL_BASE = TransformerSize(
    hidden=512, layers=16, heads=8, inner=2048, vocabulary=267735, positions=192, fused=False
)
TRANSFORMER_XL_LARGE = TransformerSize(
    hidden=1024, layers=18, heads=16, inner=4096, vocabulary=267735, positions=384, fused=False,
    dropout=0.2,
)  # fmt: skip

# Words of WikiText-103 by frequency: the head of the adaptive softmax has those before the first
# cutoff. Shares of tokens that the tails have are estimates by a law of Zipf whose last word is
# seen three times.
_CUTOFFS = (19997, 39997, 199997)
_SHARES = (0.02, 0.025, 0.0025)


class Translator(nn.Module):
    """Encoder and decoder (Vaswani et al., 2017, arXiv 1706.03762).

    Both embeddings and the output share their weights.

    Args:
        size: of the model; as many layers in each half.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.drop = nn.Dropout(size.dropout)
        self.encoder = nn.Sequential(
            *(NormedBlock(size, activation=nn.ReLU) for _ in range(size.layers))
        )
        self.decoder = nn.ModuleList(_DecoderBlock(size) for _ in range(size.layers))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns the mean loss, of labels smoothed by a tenth.

        Args:
            source: int64 (batch, length).
            target: int64 (batch, length).
        """
        memory = self.encoder(self._embed(source))
        x = self._embed(target)
        for block in self.decoder:
            x = block(x, memory)
        scores = functional.linear(x, self.tokens.weight).flatten(0, 1).float()
        return functional.cross_entropy(scores, target.flatten(), label_smoothing=0.1)

    def _embed(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        scaled = self.tokens(tokens) * math.sqrt(self.size.hidden)
        return self.drop(scaled + sinusoids(places, self.size.hidden))


class TransformerXL(nn.Module):
    """Transformer-XL (Dai et al., 2019, arXiv 1901.02860), as DeepLearningExamples trains it.

    Args:
        size: of the model; positions are both the tokens it predicts and those it remembers.
        shrink: how much narrower the embeddings of rarer words are, cluster by cluster.
    """

    def __init__(self, size: TransformerSize, *, shrink: int = 1) -> None:
        super().__init__()
        self.size = size
        self.words = AdaptiveWords(size, shrink)
        self.drop = nn.Dropout(size.dropout)
        self.biases = nn.Parameter(torch.zeros(2, size.heads, 1, size.hidden // size.heads))
        self.blocks = nn.ModuleList(_RecurrentBlock(size) for _ in range(size.layers))
        self.loss = AdaptiveSoftmax(size)

    def forward(self, tokens: Tensor, targets: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean loss and the next memory.

        Args:
            tokens: int64 (batch, length).
            targets: int64 (batch, length); below what the smallest part of the softmax holds.
            memory: (layers, batch, length, hidden).
        """
        length = tokens.shape[1] + memory.shape[2]
        backwards = torch.arange(length - 1, -1, -1, device=tokens.device, dtype=torch.float32)
        places = self.drop(sinusoids(backwards, self.size.hidden))
        x = self.drop(self.words(tokens) * math.sqrt(self.size.hidden))
        kept: list[Tensor] = []
        for block, before in zip(self.blocks, memory, strict=True):
            kept.append(x.detach())
            x = block(x, before, places, self.biases)
        loss = self.loss(self.drop(x), targets, self.words)
        return loss, torch.stack(kept)


class AdaptiveWords(nn.Module):
    """Embeddings in clusters, those of rare words narrower (Baevski, Auli, 2018, arXiv 1809.10853).

    Which tokens are rare words depends on data, so a fixed share of the tokens stands in for them.

    Args:
        size: of the model.
        shrink: how much narrower each cluster is than the one before.
    """

    def __init__(self, size: TransformerSize, shrink: int) -> None:
        super().__init__()
        bounds = (0, *_CUTOFFS, size.vocabulary)
        widths = [size.hidden // shrink**number for number in range(len(bounds) - 1)]
        self.tables = nn.ModuleList(
            nn.Embedding(last - first, width)
            for (first, last), width in zip(pairwise(bounds), widths, strict=True)
        )
        self.projections = nn.ModuleList(
            nn.Linear(width, size.hidden, bias=False) for width in widths if shrink > 1
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns what tokens are (batch, length, hidden).

        Args:
            tokens: int64 (batch, length); below what the smallest cluster holds.
        """
        rows = tokens.flatten()
        x = self._projected(0, self.tables[0](rows))
        for number, share in enumerate(_SHARES, 1):
            some = rows[: math.ceil(len(rows) * share)]
            rare = self._projected(number, self.tables[number](some))
            x = functional.pad(rare, (0, 0, 0, len(rows) - len(some))) + x
        return x.view(*tokens.shape, -1)

    def scores(self, number: int, rows: Tensor, more: Tensor | None, bias: Tensor) -> Tensor:
        """Returns scores (rows, words) of a cluster's words, in float32.

        Args:
            number: of the cluster.
            rows: (rows, hidden).
            more: (words, hidden), scored as well.
            bias: (words).
        """
        if self.projections:
            rows = rows @ cast(nn.Linear, self.projections[number]).weight
        words = cast(nn.Embedding, self.tables[number]).weight
        words = words if more is None else torch.cat([words, more])
        return functional.linear(rows, words, bias).float()

    def _projected(self, number: int, x: Tensor) -> Tensor:
        return self.projections[number](x) if self.projections else x


class AdaptiveSoftmax(nn.Module):
    """Softmax over frequent words, and over rare ones where they are (arXiv 1609.04309).

    Which tokens are rare words depends on data, so this stands in for it at equal cost: each tail
    multiplies a fixed share of the tokens, the first ones.

    Args:
        size: of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.clusters = nn.Linear(size.hidden, len(_CUTOFFS))
        self.bias = nn.Parameter(torch.zeros(size.vocabulary))
        self.bounds = (0, *_CUTOFFS, size.vocabulary)

    def forward(self, x: Tensor, targets: Tensor, words: AdaptiveWords) -> Tensor:
        """Returns the mean loss.

        Args:
            x: (batch, length, hidden).
            targets: int64 (batch, length).
            words: whose embeddings score.
        """
        rows, labels = x.flatten(0, 1), targets.flatten()
        loss = torch.zeros((), device=x.device)
        for number, (first, last) in enumerate(pairwise(self.bounds)):
            bias, more = self.bias[first:last], None
            if first == 0:
                bias, more = torch.cat([bias, self.clusters.bias]), self.clusters.weight
            count = math.ceil(len(rows) * (1.0, *_SHARES)[number])
            scores = words.scores(number, rows[:count], more, bias)
            loss = loss + functional.cross_entropy(scores, labels[:count], reduction="sum")
        return loss / len(rows)


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Returns sines and cosines of places (places, width).

    Args:
        places: float (places).
        width: even.
    """
    exponents = torch.arange(0, width, 2, device=places.device, dtype=torch.float32) / width
    angles = places.unsqueeze(1) * torch.pow(10000.0, -exponents)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class _CrossAttention(nn.Module):
    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.head = size.hidden // size.heads
        self.query = nn.Linear(size.hidden, size.hidden)
        self.key_value = nn.Linear(size.hidden, 2 * size.hidden)
        self.proj = nn.Linear(size.hidden, size.hidden)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = _heads(self.query(x), self.head)
        k, v = _heads(self.key_value(memory), self.head).chunk(2, dim=1)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(self.head)
        return self.proj(_joined(self.drop(scores.softmax(-1)) @ v))


class _DecoderBlock(nn.Module):
    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.own, self.cross = Attention(size, causal=True), _CrossAttention(size)
        self.mlp = nn.Sequential(
            nn.Linear(size.hidden, size.inner_width),
            nn.ReLU(),
            nn.Linear(size.inner_width, size.hidden),
        )
        norm = partial(nn.LayerNorm, size.hidden)
        self.norm1, self.norm2, self.norm3 = norm(), norm(), norm()
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.own(x)))
        x = self.norm2(x + self.drop(self.cross(x, memory)))
        return self.norm3(x + self.drop(self.mlp(x)))


class _RecurrentBlock(nn.Module):
    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.head = size.hidden // size.heads
        linear = partial(nn.Linear, size.hidden, bias=False)
        self.qkv, self.places = linear(3 * size.hidden), linear(size.hidden)
        self.proj = linear(size.hidden)
        self.mlp = nn.Sequential(
            nn.Linear(size.hidden, size.inner_width),
            nn.ReLU(),
            nn.Dropout(size.dropout),
            nn.Linear(size.inner_width, size.hidden),
        )
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor, memory: Tensor, places: Tensor, biases: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.proj(self._mixed(x, memory, places, biases))))
        return self.norm2(x + self.drop(self.mlp(x)))

    def _mixed(self, x: Tensor, memory: Tensor, places: Tensor, biases: Tensor) -> Tensor:
        """Returns what attention gathers: content and distance both score (section 3.3)."""
        tokens, remembered = x.shape[1], memory.shape[1]
        parts = _heads(self.qkv(torch.cat([memory, x], dim=1)), self.head)
        q, k, v = parts.chunk(3, dim=1)
        q = q[:, :, remembered:]
        r = self.places(places).view(len(places), -1, self.head)
        content = (q + biases[0]) @ k.transpose(-1, -2)
        distance = torch.einsum("bhtd,lhd->bhtl", q + biases[1], r)
        scores = (content + _shifted(distance)) / math.sqrt(self.head)
        hidden = torch.ones(tokens, remembered + tokens, dtype=torch.bool, device=x.device)
        scores = scores.masked_fill(hidden.triu(1 + remembered), -math.inf)
        return _joined(scores.softmax(-1) @ v)


def _heads(x: Tensor, head: int) -> Tensor:
    """Returns (b, h, t, d) of (b, t, h * d)."""
    batch, tokens, _ = x.shape
    return x.view(batch, tokens, -1, head).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """Returns (b, t, h * d) of (b, h, t, d)."""
    return x.transpose(1, 2).flatten(2)


def _shifted(x: Tensor) -> Tensor:
    """Returns x (b, h, t, t + m) with each row moved left, the first one most.

    A column of zeros before the first makes rows one longer; read as rows of the old length, each
    starts one later than the one before (appendix B of the paper).
    """
    batch, heads, rows, columns = x.shape
    padded = functional.pad(x, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)
