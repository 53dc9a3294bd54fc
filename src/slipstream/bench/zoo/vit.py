"""A vision transformer, ViT-S/16, with PyTorch's fused attention.

Shapes: b is the batch size, n the number of tokens (196 patches and the class token), and d the
    width 384.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.bench.zoo.layers import IMAGE_SIZE, NUM_CLASSES, settle_classifier

PATCH = 16
WIDTH = 384
NUM_HEADS = 6
NUM_LAYERS = 12
NUM_TOKENS = (IMAGE_SIZE // PATCH) ** 2 + 1
EPSILON = 1e-6


class VitAttention(nn.Module):
    """Multi-head self-attention, in which one matrix computes queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x_bnd: Tensor) -> Tensor:
        """Map float32 [b, n, d] to the same shape."""
        heads = self.query_key_value(x_bnd).reshape(
            -1, NUM_TOKENS, 3, NUM_HEADS, WIDTH // NUM_HEADS
        )
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).reshape(-1, NUM_TOKENS, WIDTH))


class VitLayer(nn.Module):
    """Attention and a feed-forward network with GELU, each with pre-norm and shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(WIDTH, eps=EPSILON), VitAttention())
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH, eps=EPSILON),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x_bnd: Tensor) -> Tensor:
        """Map float32 [b, n, d] to the same shape."""
        x_bnd = x_bnd + self.attention(x_bnd)
        return x_bnd + self.feed_forward(x_bnd)


class ZooVisionTransformer(nn.Module):
    """Transformer over the patches of an image and a class token, which yields the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, NUM_TOKENS, WIDTH))
        self.layers = nn.Sequential(*(VitLayer() for _ in range(NUM_LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Map float32 [b, 3, 224, 224] to logits [b, 1000]."""
        patches_bnd = self.patches(image).flatten(2).transpose(1, 2)
        first = self.class_token.expand(image.shape[0], -1, -1)
        tokens_bnd = torch.cat((first, patches_bnd), dim=1) + self.positions
        return self.head(self.norm(self.layers(tokens_bnd))[:, 0])


def vit_small() -> nn.Module:
    """Return ViT-S/16, which maps float32 [1, 3, 224, 224] to logits [1, 1000].

    The network has 22,050,664 parameters and takes 4.60 GMAC. Source: Dosovitskiy et al., "An Image
    is Worth 16x16 Words" (2020), in the small size of Touvron et al., "Training data-efficient
    image transformers" (2020).
    """
    return settle_classifier(ZooVisionTransformer)
