"""Transformers in which each token attends to all tokens: BERT and the Vision Transformer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.transformer import (
    PreNormBlock,
    SelfAttention,
    TransformerSize,
)

BERT_BASE = TransformerSize(
    hidden=768, layers=12, heads=12, vocabulary=30522, positions=512, fused=False
)
BERT_LARGE = TransformerSize(
    hidden=1024, layers=24, heads=16, vocabulary=30522, positions=512, fused=False
)

_VIT = {
    "tiny": TransformerSize(hidden=192, layers=12, heads=3, dropout=0.0),
    "small": TransformerSize(hidden=384, layers=12, heads=6, dropout=0.0),
    "base": TransformerSize(hidden=768, layers=12, heads=12, dropout=0.0),
    "large": TransformerSize(hidden=1024, layers=24, heads=16, dropout=0.0),
}


class NormedBlock(nn.Module):
    """Attention and a feed-forward part, each followed by a norm, as in the first transformer.

    Args:
        size: Dimensions of the model.
        causal: Whether each token attends only to itself and to earlier tokens (default False).
        activation: Activation of the feed-forward part (default GELU).
    """

    def __init__(
        self,
        size: TransformerSize,
        *,
        causal: bool = False,
        activation: Callable[[], nn.Module] = nn.GELU,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(size, causal=causal)
        self.mlp = nn.Sequential(
            nn.Linear(size.hidden, size.inner_width),
            activation(),
            nn.Linear(size.inner_width, size.hidden),
        )
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.drop = nn.Dropout(size.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden states after the block, (batch, tokens, hidden) like `x`."""
        x = self.norm1(x + self.drop(self.attention(x)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Encoder(nn.Module):
    """BERT without its heads (Devlin et al., 2019, arXiv 1810.04805).

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.places = nn.Embedding(size.positions, size.hidden)
        self.segments = nn.Embedding(2, size.hidden)
        self.norm = nn.LayerNorm(size.hidden)
        self.drop = nn.Dropout(size.dropout)
        self.blocks = nn.Sequential(*(NormedBlock(size) for _ in range(size.layers)))

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Return the hidden states after the last block, (batch, length, hidden).

        Args:
            tokens: Token ids, int64 (batch, length).
            segments: Index of the sentence that contains each token, 0 or 1, int64 (batch, length).
        """
        places = self.places.weight[: tokens.shape[1]]
        x = self.tokens(tokens) + places + self.segments(segments)
        return self.blocks(self.drop(self.norm(x)))


class BertPretraining(nn.Module):
    """BERT that predicts masked tokens, and whether the second sentence follows the first.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.encoder = Encoder(size)
        self.pool = nn.Sequential(nn.Linear(size.hidden, size.hidden), nn.Tanh())
        self.follows = nn.Linear(size.hidden, 2)
        self.transform = nn.Sequential(
            nn.Linear(size.hidden, size.hidden), nn.GELU(), nn.LayerNorm(size.hidden)
        )
        self.decode = nn.Linear(size.hidden, size.vocabulary)
        self.decode.weight = self.encoder.tokens.weight

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor,
        positions: Tensor,
        masked: Tensor,
        follows: Tensor,
    ) -> Tensor:
        """Return the mean loss of the masked tokens plus that of next-sentence prediction.

        Args:
            tokens: Token ids, int64 (batch, length).
            segments: Index of the sentence that contains each token, 0 or 1, int64 (batch, length).
            positions: Positions of the masked tokens, int64 (batch, predictions).
            masked: Ids of these tokens before they were masked, int64 (batch, predictions).
            follows: Whether the second sentence follows the first, int64 (batch), 0 or 1.
        """
        x = self.encoder(tokens, segments)
        hidden = x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        words = self.decode(self.transform(hidden)).flatten(0, 1).float()
        pairs = self.follows(self.pool(x[:, 0])).float()
        return functional.cross_entropy(words, masked.flatten()) + functional.cross_entropy(
            pairs, follows
        )


class BertAnswers(nn.Module):
    """BERT that finds where the answer to a question starts and ends (SQuAD).

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.encoder = Encoder(size)
        self.ends = nn.Linear(size.hidden, 2)

    def forward(self, tokens: Tensor, segments: Tensor, answers: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            tokens: Token ids, int64 (batch, length).
            segments: Index of the sentence that contains each token, 0 or 1, int64 (batch, length).
            answers: Positions of the first and the last token of the answer, int64 (batch, 2).
        """
        scores = self.ends(self.encoder(tokens, segments)).float()
        return functional.cross_entropy(scores, answers)


class ImageTransformer(nn.Module):
    """Vision Transformer (Dosovitskiy et al., 2021, arXiv 2010.11929).

    Args:
        width: Size of the model: "tiny", "small", "base" or "large".
        patch: Width and height in pixels of the image patch that makes one token (default 16).
        side: Width and height of an image, in pixels.
        num_classes: Number of classes.
    """

    def __init__(
        self, width: str, patch: int = 16, side: int = 224, num_classes: int = 1000
    ) -> None:
        super().__init__()
        size = _VIT[width]
        self.patches = nn.Conv2d(3, size.hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size.hidden))
        self.places = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, size.hidden))
        self.blocks = nn.Sequential(*(PreNormBlock(size, causal=False) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.hidden)
        self.classifier = nn.Linear(size.hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, side, side)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(images), -1, -1), patches], dim=1) + self.places
        return self.classifier(self.norm(self.blocks(x))[:, 0])
