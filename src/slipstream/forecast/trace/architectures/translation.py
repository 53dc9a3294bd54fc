"""Text transformers: the translator of the first transformer paper, and Transformer-XL.

Shapes: b is the batch size, h heads, t tokens, m tokens of memory, d elements of a head.
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
from slipstream.forecast.trace.architectures.transformer import SelfAttention, TransformerSize

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

# Positions that divide the words of WikiText-103, sorted by frequency, into clusters. The head of
# the adaptive softmax has the words before the first cutoff; its tails have the others. The shares
# of tokens in the tails are estimates by Zipf's law, with three occurrences of the rarest word.
_CUTOFFS = (19997, 39997, 199997)
_SHARES = (0.02, 0.025, 0.0025)


class Translator(nn.Module):
    """Encoder and decoder (Vaswani et al., 2017, arXiv 1706.03762).

    The embeddings of both languages and the output layer share their weights.

    Args:
        size: Dimensions of the model; encoder and decoder have `layers` blocks each.
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
        """Return the mean loss, with labels smoothed by 0.1.

        Args:
            source: Token ids of the source language, int64 (batch, length).
            target: Token ids of the target language, int64 (batch, length).
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
    """Transformer-XL (Dai et al., 2019, arXiv 1901.02860), trained like DeepLearningExamples does.

    Args:
        size: Dimensions of the model; `positions` is the number of predicted tokens, and also the
            number of tokens in the memory.
        shrink: Factor by which the embeddings of each cluster of words are narrower than those of
            the next more frequent cluster (default 1).
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
        """Return the mean loss, and the memory for the next step.

        Args:
            tokens: Token ids that the model reads, int64 (batch, length); the limit of `targets`
                applies.
            targets: Token ids to predict, int64 (batch, length). Each id must be smaller than the
                number of words in the smallest cluster, because each cluster reads some ids as
                indices of its own words.
            memory: Inputs of the blocks in the previous step, (layers, batch, length, hidden).
        """
        length = tokens.shape[1] + memory.shape[2]
        backwards = torch.arange(length - 1, -1, -1, device=tokens.device, dtype=torch.float32)
        places = self.drop(sinusoids(backwards, self.size.hidden))
        x = self.drop(self.words(tokens) * math.sqrt(self.size.hidden))
        inputs: list[Tensor] = []
        for block, before in zip(self.blocks, memory, strict=True):
            inputs.append(x.detach())
            x = block(x, before, places, self.biases)
        loss = self.loss(self.drop(x), targets, self.words)
        return loss, torch.stack(inputs)


class AdaptiveWords(nn.Module):
    """Embeddings in clusters, narrower for rarer words (Baevski, Auli, 2018, arXiv 1809.10853).

    The data decide which tokens are rare words. A trace has no data, so a fixed share of the tokens
    is treated as rare.

    Args:
        size: Dimensions of the model.
        shrink: Factor by which the embeddings of each cluster are narrower than those of the
            cluster before it.
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
        """Return the embeddings of tokens, (batch, length, hidden).

        Args:
            tokens: Token ids, int64 (batch, length). Each id must be smaller than the number of
                words in the smallest cluster, because each cluster reads some ids as indices of its
                own words.
        """
        rows = tokens.flatten()
        x = self._projected(0, self.tables[0](rows))
        for number, share in enumerate(_SHARES, 1):
            some = rows[: math.ceil(len(rows) * share)]
            rare = self._projected(number, self.tables[number](some))
            x = functional.pad(rare, (0, 0, 0, len(rows) - len(some))) + x
        return x.view(*tokens.shape, -1)

    def scores(self, number: int, rows: Tensor, more: Tensor | None, bias: Tensor) -> Tensor:
        """Return the scores of the words of a cluster for each token, float32 (rows, words).

        Args:
            number: Index of the cluster.
            rows: Hidden states (rows, hidden), one row per token.
            more: Embeddings (words, hidden) that are scored in addition to those of the cluster, or
                None.
            bias: Bias of each score (words).
        """
        if self.projections:
            rows = rows @ cast(nn.Linear, self.projections[number]).weight
        words = cast(nn.Embedding, self.tables[number]).weight
        words = words if more is None else torch.cat([words, more])
        return functional.linear(rows, words, bias).float()

    def _projected(self, number: int, x: Tensor) -> Tensor:
        return self.projections[number](x) if self.projections else x


class AdaptiveSoftmax(nn.Module):
    """Softmax over frequent words, with tails for rare words (Grave et al., arXiv 1609.04309).

    The data decide which tokens are rare words. A trace has no data, so each tail scores a fixed
    share of the tokens: the first tokens of the batch, which cost as much as any others.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.clusters = nn.Linear(size.hidden, len(_CUTOFFS))
        self.bias = nn.Parameter(torch.zeros(size.vocabulary))
        self.bounds = (0, *_CUTOFFS, size.vocabulary)

    def forward(self, x: Tensor, targets: Tensor, words: AdaptiveWords) -> Tensor:
        """Return the mean loss.

        Args:
            x: Hidden states after the last block, (batch, length, hidden).
            targets: Token ids to predict, int64 (batch, length). Each id must be smaller than the
                number of words in the smallest cluster, because each cluster reads some ids as
                indices of its own words.
            words: Embeddings that share their weights with the softmax.
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
    """Return the sines and cosines of positions, of shape (positions, width).

    Args:
        places: One-dimensional float tensor of positions.
        width: Number of elements per token; an even number.
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
        self.own, self.cross = SelfAttention(size, causal=True), _CrossAttention(size)
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
        """Return the result of attention whose scores add terms for content and for distance."""
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
    """Return a tensor (b, t, h * d) as heads (b, h, t, d)."""
    batch, tokens, _ = x.shape
    return x.view(batch, tokens, -1, head).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """Return heads (b, h, t, d) as a tensor (b, t, h * d)."""
    return x.transpose(1, 2).flatten(2)


def _shifted(x: Tensor) -> Tensor:
    """Return x (b, h, t, t + m) with row i of the t rows moved left by t - 1 - i columns.

    First, a zero is put in front of each row. Then the first t elements of the matrix are dropped,
    and the others are cut into rows of the old length (appendix B of the Transformer-XL paper).
    """
    batch, heads, rows, columns = x.shape
    padded = functional.pad(x, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)
