"""A small network to compile, and inputs for its calibration and accuracy.

slipstream compile examples.03_inference.network:make -o model.slip \\
    --data examples.03_inference.network:samples
"""

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    """A depthwise and a pointwise convolution with a residual connection, as in MobileNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            nn.BatchNorm2d(channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def make() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the network and an example input of shape (1, 3, 64, 64)."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.SiLU(),
        Block(32),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return network.eval(), (torch.randn(1, 3, 64, 64),)


def samples() -> list[np.ndarray]:
    """Return sixteen inputs."""
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal((1, 3, 64, 64), np.float32) for _ in range(16)]
