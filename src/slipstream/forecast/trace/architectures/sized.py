"""Encoders of any size: a text encoder that predicts masked tokens, and a vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.encoders import Encoder
from slipstream.forecast.trace.architectures.transformer import PreNormBlock, TransformerSize


class MaskedTokens(nn.Module):
    """RoBERTa (arXiv 1907.11692) or DistilBERT (arXiv 1910.01108).

    The model predicts masked tokens, and not whether the second sentence follows the first.

    Args:
        size: Dimensions of the model.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.encoder = Encoder(size)
        self.transform = nn.Sequential(
            nn.Linear(size.hidden, size.hidden), nn.GELU(), nn.LayerNorm(size.hidden)
        )
        self.decode = nn.Linear(size.hidden, size.vocabulary)
        self.decode.weight = self.encoder.tokens.weight

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Return the mean loss over all tokens, masked or not, like the library `transformers`.

        Args:
            tokens: Token ids, int64 (batch, length).
            segments: Segment ids, int64 (batch, length), 0 or 1.
        """
        words = self.decode(self.transform(self.encoder(tokens, segments)))
        return functional.cross_entropy(words.flatten(0, 1).float(), tokens.flatten())


class VisionTransformer(nn.Module):
    """A vision transformer (arXiv 2010.11929).

    Args:
        size: Dimensions of the transformer blocks.
        patch: Width and height of a patch, in pixels.
        side: Width and height of an image, in pixels.
        channels: Number of channels of an image.
        num_classes: Number of classes.
    """

    def __init__(
        self, size: TransformerSize, *, patch: int, side: int, channels: int, num_classes: int
    ) -> None:
        super().__init__()
        places = (side // patch) ** 2 + 1
        self.patches = nn.Conv2d(channels, size.hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size.hidden))
        self.places = nn.Parameter(torch.zeros(1, places, size.hidden))
        self.blocks = nn.Sequential(*(PreNormBlock(size, causal=False) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.hidden)
        self.classifier = nn.Linear(size.hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, channels, side, side)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(images.shape[0], -1, -1), patches], dim=1) + self.places
        return self.classifier(self.norm(self.blocks(x))[:, 0])
