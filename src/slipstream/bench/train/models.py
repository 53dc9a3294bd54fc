"""Models of the training benchmark, with generated inputs instead of a data set.

`resnet50` and `gpt2` (GPT-2 small) are for GPUs. `tiny`, a transformer of 0.1 million parameters,
shows in seconds whether a set-up works.

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

from slipstream.forecast.trace.architectures.resnet import resnet as published_resnet

NUM_CLASSES = 10
VOCABULARY = 256

Batch = tuple[Tensor, Tensor]


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
    batch: Callable[[int, torch.Generator], Batch]
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
    """A causal transformer that predicts the next symbol of a sequence.

    Args:
        width: Width of the embedding (default 512).
        num_layers: Number of layers, each with attention and a feed-forward network (default 8).
        longest: Highest length of a sequence (default 32).
        vocabulary: Number of symbols (default 256).
        heads: Number of heads of attention (default 8).
    """

    def __init__(
        self,
        width: int = 512,
        num_layers: int = 8,
        longest: int = 32,
        vocabulary: int = VOCABULARY,
        heads: int = 8,
    ) -> None:
        super().__init__()
        self.symbols = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Map symbols int64 [batch, length] to logits [batch, vocabulary, length]."""
        length = x.shape[1]
        hidden = self.symbols(x) + self.positions(torch.arange(length, device=x.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden).transpose(1, 2)


def gpt2() -> nn.Module:
    """Return a transformer of the size of GPT-2 small, 124 million parameters.

    Dimensions: Radford et al., 2019, "Language Models are Unsupervised Multitask Learners".
    """
    model = Transformer(width=768, num_layers=12, longest=1024, vocabulary=50257, heads=12)
    nn.init.normal_(model.symbols.weight, std=0.02)
    model.head = nn.Linear(768, 50257, bias=False)
    model.head.weight = model.symbols.weight
    return model


def resnet50() -> nn.Module:
    """Return ResNet-50, which maps float [batch, 3, 224, 224] to logits [batch, 1000]."""
    return published_resnet("resnet50")


def images(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return noisy images of ten classes, float [count, 1, 28, 28], and their labels."""
    classes = torch.randn(NUM_CLASSES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(NUM_CLASSES, (count,), generator=generator)
    pixels = classes[labels] + 8 * torch.randn(count, 1, 28, 28, generator=generator)
    return pixels.contiguous(memory_format=torch.channels_last), labels


def noise(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random images, float [count, 3, 224, 224], and random labels below 1000."""
    pixels = torch.randn(count, 3, 224, 224, generator=generator)
    return pixels, torch.randint(1000, (count,), generator=generator)


def sequences(length: int, vocabulary: int) -> Callable[[int, torch.Generator], Batch]:
    """Return a function that makes sequences, and for each symbol its successor.

    Each sequence starts with a random symbol and increases by a constant random step.

    Args:
        length: Number of symbols of a sequence.
        vocabulary: Number of different symbols.
    """

    def batch(count: int, generator: torch.Generator) -> Batch:
        start = torch.randint(vocabulary, (count, 1), generator=generator)
        stride = torch.randint(1, 4, (count, 1), generator=generator)
        symbols = (start + stride * torch.arange(length + 1)) % vocabulary
        return symbols[:, :-1], symbols[:, 1:]

    return batch


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
        batch=sequences(16, VOCABULARY),
        batch_size=4,
        learning_rate=0.01,
        bucket_megabytes=25,
    ),
    "tiny": Trainable(
        build=lambda: Transformer(width=64, num_layers=2),
        batch=sequences(16, VOCABULARY),
        batch_size=4,
        learning_rate=0.01,
        bucket_megabytes=0.1,
    ),
    "resnet50": Trainable(
        build=resnet50,
        batch=noise,
        batch_size=32,
        learning_rate=0.01,
        bucket_megabytes=25,
    ),
    "gpt2": Trainable(
        build=gpt2,
        batch=sequences(256, 50257),
        batch_size=4,
        learning_rate=0.01,
        bucket_megabytes=25,
    ),
}
