"""Shared parts of the zoo's networks: normalised convolutions, random weights, random images.

Weights are random, and yet no activation vanishes or explodes: convolutions start as He et al.
(2015) propose, and the running statistics of batch normalisation are those of one pass of random
pictures. Channels differ in range as they do in trained networks.

Small errors stay small too, as in trained networks: with plain random weights, each normalised
layer with ReLU makes two inputs that are alike less so (Yang et al., "A Mean Field Theory of Batch
Normalization", 2019), and after fifty of them nothing is left of an answer computed in bytes. So
branches beside a shortcut are short, and most of what reaches an activation is above 0.
"""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NUM_CLASSES = 1000
PICTURE_SIZE = 224  # of the classifiers
SEED = 20
NUM_CALIBRATION_PICTURES = 4
NUM_COMPARED_PICTURES = 12  # with which a classifier's last layer compares
BRANCH_GAIN = 0.2  # of what is added to a shortcut, beside the shortcut's 1
SHIFT = 0.4  # of what batch normalisation gives, in its standard deviations


class BranchNorm2d(nn.BatchNorm2d):
    """Batch normalisation of what is added to a shortcut."""


def conv_norm(
    in_channels: int,
    out_channels: int,
    kernel: int,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: type[nn.Module] | None = None,
    ends_branch: bool = False,
) -> nn.Sequential:
    """Return a convolution without bias, batch normalisation and, if given, an activation.

    Maps float32 [batch, in_channels, h, w] to [batch, out_channels, h/stride, w/stride] where the
    stride divides both. What ends a branch beside a shortcut is normalised to `BRANCH_GAIN`.
    """
    padding = (kernel - 1) // 2
    norm = BranchNorm2d if ends_branch else nn.BatchNorm2d
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, out_channels, kernel, stride, padding, groups=groups, bias=False),
        norm(out_channels),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def settle(make: Callable[[], nn.Module], calibration: Tensor | None = None) -> nn.Module:
    """Return a network with the same random weights each time, ready for inference.

    PyTorch's own random state is left as it was.

    Args:
        make: constructs the network; parameters that are no layer's are drawn here.
        calibration: input of the pass that sets batch normalisation's running statistics; float32
            [batch, ...], default none, for networks without batch normalisation.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model = make()
        for module in model.modules():
            _draw(module)
        if calibration is not None:
            model.train()
            model(calibration)
    return model.eval().requires_grad_(False)


def settle_classifier(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a settled network whose logits tell pictures apart, and are 0 in their mean.

    A random last layer gives nearly the same answer to each picture, and errors stand out beside
    what little differs. So this one compares features with those of some pictures, as a trained one
    compares them with those of classes.

    Args:
        make: constructs a network of float32 [batch, 3, 224, 224] to logits [batch, 1000]; its last
            layer is linear.
    """
    model = settle(make, calibration_pictures(PICTURE_SIZE))
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    features: list[Tensor] = []
    listening = head.register_forward_pre_hook(lambda _head, given: features.append(given[0]))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model(calibration_pictures(PICTURE_SIZE, NUM_COMPARED_PICTURES))
        listening.remove()
        mean = features[0].mean(0)
        weights = torch.randn(NUM_CLASSES, NUM_COMPARED_PICTURES) @ (features[0] - mean)
        head.weight.copy_(weights / weights.std() / math.sqrt(len(mean)))
        head.bias.copy_(-(head.weight @ mean))
    return model


def picture(seed: int, size: int) -> NDArray[np.float32]:
    """Return noise with the spectrum of photographs, 1/f (Field 1987): float32 [1, 3, size, size].

    Each channel has mean 0 and standard deviation 1.
    """
    noise = np.random.default_rng(seed).standard_normal((1, 3, size, size))
    rows = np.fft.fftfreq(size)[:, np.newaxis]
    frequency = np.maximum(np.hypot(rows, np.fft.rfftfreq(size)), 1 / size)
    shaped = np.fft.irfft2(np.fft.rfft2(noise) / frequency, s=(size, size))
    shaped -= shaped.mean(axis=(2, 3), keepdims=True)
    return (shaped / shaped.std(axis=(2, 3), keepdims=True)).astype(np.float32)


def calibration_pictures(size: int, count: int = NUM_CALIBRATION_PICTURES) -> Tensor:
    """Return a batch of pictures for `settle`: float32 [count, 3, size, size]."""
    pictures = [picture(SEED + number, size) for number in range(count)]
    return torch.from_numpy(np.concatenate(pictures))


def _draw(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0
        nn.init.normal_(module.weight, std=math.sqrt(gain / module.weight[0].numel()))
        bias: Any = module.bias  # declared a Tensor, and None without
        if bias is not None:
            nn.init.normal_(bias, std=0.1)
    elif isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.normal_(module.bias, std=0.1)
    if isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.bias, SHIFT, std=0.3)
        module.momentum = None  # the mean of all passes: with one, that pass's statistics
    if isinstance(module, BranchNorm2d):
        module.weight.mul_(BRANCH_GAIN)
        module.bias.mul_(BRANCH_GAIN)
