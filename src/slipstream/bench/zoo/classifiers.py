"""Convolutional classifiers, built from the architectures of `slipstream.forecast`.

Each function returns a network that maps float32 [1, 3, 224, 224] to logits [1, 1000].
"""

from __future__ import annotations

from torch import nn

from slipstream.bench.zoo.layers import BranchNorm2d, settle_classifier
from slipstream.forecast.trace.architectures.efficient import (
    InvertedBlock,
    efficientnet,
    mobilenet_v3_large,
)
from slipstream.forecast.trace.architectures.resnet import ResidualBlock, resnet


def resnet50() -> nn.Module:
    """Return ResNet-50 v1.5, which has the stride in the 3 x 3 convolution of a bottleneck.

    The network has 25,557,032 parameters and takes 4.09 GMAC. Source: He et al., "Deep Residual
    Learning for Image Recognition" (2015).
    """
    return settle_classifier(lambda: with_branch_norms(resnet("resnet50")))


def resnet26d() -> nn.Module:
    """Return ResNet-26-D, whose first layer is three convolutions and whose shortcuts pool.

    The network has 16,014,408 parameters and takes 2.58 GMAC. Source: He et al., "Bag of Tricks for
    Image Classification with Convolutional Neural Networks" (2018), section 4.2.
    """
    return settle_classifier(lambda: with_branch_norms(resnet("resnet26d")))


def mobilenetv3_large() -> nn.Module:
    """Return MobileNetV3-Large.

    The network has 5,483,032 parameters and takes 0.217 GMAC. Source: Howard et al., "Searching for
    MobileNetV3" (2019), table 1.
    """
    return settle_classifier(lambda: with_branch_norms(mobilenet_v3_large(dropout=0.0)))


def efficientnet_b0() -> nn.Module:
    """Return EfficientNet-B0.

    The network has 5,288,548 parameters and takes 0.386 GMAC. Source: Tan and Le, "EfficientNet:
    Rethinking Model Scaling for Convolutional Neural Networks" (2019), table 1.
    """
    return settle_classifier(lambda: with_branch_norms(efficientnet(0, drop=0.0)))


def with_branch_norms(network: nn.Module) -> nn.Module:
    """End each branch beside a shortcut with a `BranchNorm2d`; return the changed network."""
    for block in network.modules():
        if isinstance(block, ResidualBlock) or (isinstance(block, InvertedBlock) and block.added):
            assert isinstance(block.main, nn.Sequential)
            projection = block.main[-1]
            assert isinstance(projection, nn.Sequential)
            norm = projection[-1]
            assert isinstance(norm, nn.BatchNorm2d)
            projection[-1] = BranchNorm2d(norm.num_features)
    return network
