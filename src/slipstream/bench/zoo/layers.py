"""Random weights and random images for the networks of the zoo.

The weights are random, but no activation vanishes or explodes. Convolutions are initialised as
proposed by He et al. in 2015, and the running statistics of batch normalisation come from one pass
of random images. Channels differ in range, as they do in trained networks.

Small errors stay small, as they do in trained networks. With plain random weights, each normalised
layer with ReLU makes two similar inputs less similar (Yang et al., "A Mean Field Theory of Batch
Normalization", 2019). After fifty normalised layers with ReLU, a result computed in int8 is all
noise. Therefore the branches beside shortcuts are scaled down, and most inputs of activations are
positive.
"""

# PyTorch's type stubs leave some types unspecified.
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
IMAGE_SIZE = 224  # width and height of a classifier's input images, in pixels
SEED = 20
NUM_CALIBRATION_IMAGES = 4
NUM_COMPARED_IMAGES = 12  # number of images whose features determine the last layer of a classifier
# Chosen by hand, so that int8 loses about as much accuracy as on trained networks. Without these
# scales, ResNet-50 in int8 had a signal-to-noise ratio of 3 dB in every engine.
BRANCH_GAIN = 0.2  # scale of a branch relative to its shortcut
SHIFT = 0.4  # mean of a batch normalisation's output, in its standard deviations


class BranchNorm2d(nn.BatchNorm2d):
    """Batch normalisation at the end of a branch beside a shortcut; `settle` scales it down."""


def settle(make: Callable[[], nn.Module], calibration: Tensor | None = None) -> nn.Module:
    """Return a network in eval mode, whose random weights are always the same.

    PyTorch's global random state stays unchanged.

    Args:
        make: Function that constructs the network. `settle` draws new random weights for
            convolutions, linear layers and normalisations, but not for other layers.
        calibration: Input of the pass that sets the running statistics of batch normalisation,
            float32 [batch, ...] (default None, for networks without batch normalisation).
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
    """Return a network whose logits differ between images and have a mean of 0.

    With a random last layer, the logits are nearly the same for every image, so small errors look
    large compared with the differences between images. Therefore the weights of the last layer are
    random sums of the features of some images, which resembles a trained last layer.

    Args:
        make: Function that constructs a network that maps float32 [batch, 3, 224, 224] to logits
            [batch, 1000]; its last layer must be linear.
    """
    model = settle(make, calibration_images(IMAGE_SIZE))
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    features: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _head, inputs: features.append(inputs[0]))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model(calibration_images(IMAGE_SIZE, NUM_COMPARED_IMAGES))
        hook.remove()
        mean = features[0].mean(0)
        weights = torch.randn(NUM_CLASSES, NUM_COMPARED_IMAGES) @ (features[0] - mean)
        head.weight.copy_(weights / weights.std() / math.sqrt(len(mean)))
        head.bias.copy_(-(head.weight @ mean))
    return model


def random_image(seed: int, size: int) -> NDArray[np.float32]:
    """Return noise with the 1/f spectrum of photographs (Field 1987): float32 [1, 3, size, size].

    Each channel has mean 0 and standard deviation 1.
    """
    noise = np.random.default_rng(seed).standard_normal((1, 3, size, size))
    rows = np.fft.fftfreq(size)[:, np.newaxis]
    frequency = np.maximum(np.hypot(rows, np.fft.rfftfreq(size)), 1 / size)
    shaped = np.fft.irfft2(np.fft.rfft2(noise) / frequency, s=(size, size))
    shaped -= shaped.mean(axis=(2, 3), keepdims=True)
    return (shaped / shaped.std(axis=(2, 3), keepdims=True)).astype(np.float32)


def calibration_images(size: int, count: int = NUM_CALIBRATION_IMAGES) -> Tensor:
    """Return a batch of images for `settle`: float32 [count, 3, size, size]."""
    images = [random_image(SEED + number, size) for number in range(count)]
    return torch.from_numpy(np.concatenate(images))


def _draw(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0
        nn.init.normal_(module.weight, std=math.sqrt(gain / module.weight[0].numel()))
        # None if the layer has no bias, although the declared type is Tensor
        bias: Any = module.bias
        if bias is not None:
            nn.init.normal_(bias, std=0.1)
    elif isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.normal_(module.bias, std=0.1)
    if isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.bias, SHIFT, std=0.3)
        # None averages over all passes: after one pass, the statistics are those of this pass
        module.momentum = None
    if isinstance(module, BranchNorm2d):
        module.weight.mul_(BRANCH_GAIN)
        module.bias.mul_(BRANCH_GAIN)
