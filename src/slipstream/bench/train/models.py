"""Models of the training benchmark, with generated inputs instead of a data set.

`resnet` is the small network of examples/01_fashion_mnist. With 166,000 parameters, `resnet` has
little to communicate. `large` is a transformer over bytes with 25 million parameters and 100 MB of
gradients. The sequences of `large` are so short that a step of four processes takes about a second
on two cores.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_CLASSES = 10
VOCABULARY = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainable:
    """A model and the settings with which it is trained.

    Args:
        build: Function that makes the model, with weights from PyTorch's global random state.
        batch: Function that returns random inputs and targets. Its arguments are the number of
            samples and a random generator.
        batch_size: Number of samples per rank and step.
        learning_rate: Learning rate of SGD with momentum 0.9.
        bucket_megabytes: Size of DDP's buckets in MB.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    batch_size: int
    learning_rate: float
    bucket_megabytes: float


class TrainResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut around them.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        stride: Stride of the first convolution; 2 halves the image.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map float [batch, in_channels, h, w] to [batch, out_channels, h/stride, w/stride]."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """Return a small ResNet, which maps float [batch, 1, 28, 28] to logits [batch, 10]."""
    blocks = [
        TrainResidualBlock(16, 32, 2),
        TrainResidualBlock(32, 32, 1),
        TrainResidualBlock(32, 64, 2),
        TrainResidualBlock(64, 64, 1),
    ]
    network = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, NUM_CLASSES),
    )
    untyped: Any = network  # the type stubs of some PyTorch releases lack this overload of to()
    return untyped.to(memory_format=torch.channels_last)


class Transformer(nn.Module):
    """A causal transformer that predicts the next byte of a sequence.

    Args:
        width: Width of the embedding (default 512).
        num_layers: Number of layers, each with attention and a feed-forward network (default 8).
        longest: Highest length of a sequence in bytes (default 32).
    """

    def __init__(self, width: int = 512, num_layers: int = 8, longest: int = 32) -> None:
        super().__init__()
        self.symbols = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        """Map bytes int64 [batch, length] to logits [batch, 256, length]."""
        length = x.shape[1]
        hidden = self.symbols(x) + self.positions(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden).transpose(1, 2)


def images(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return noisy images of ten classes, float [count, 1, 28, 28], and their labels."""
    classes = torch.randn(NUM_CLASSES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(NUM_CLASSES, (count,), generator=generator)
    pixels = classes[labels] + 8 * torch.randn(count, 1, 28, 28, generator=generator)
    return pixels.contiguous(memory_format=torch.channels_last), labels


def sequences(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences of bytes, and for each byte its successor; both int64 [count, 16].

    Each sequence starts with a random byte and increases by a constant random step.
    """
    start = torch.randint(VOCABULARY, (count, 1), generator=generator)
    stride = torch.randint(1, 4, (count, 1), generator=generator)
    symbols = (start + stride * torch.arange(17)) % VOCABULARY
    return symbols[:, :-1], symbols[:, 1:]


MODELS: Mapping[str, Trainable] = {
    "resnet": Trainable(
        build=resnet,
        batch=images,
        batch_size=64,
        learning_rate=0.05,
        bucket_megabytes=0.25,
    ),
    "large": Trainable(
        build=Transformer,
        batch=sequences,
        batch_size=4,
        learning_rate=0.01,
        bucket_megabytes=25,
    ),
}
