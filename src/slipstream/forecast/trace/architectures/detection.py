"""SSD300 with a ResNet-50, as NVIDIA trains it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slipstream.forecast.trace.architectures.convolutions import conv_norm
from slipstream.forecast.trace.architectures.resnet import ResNetSize, trunk

# Channels and boxes per pixel of the six feature maps from which boxes are predicted. The first map
# is the output of the backbone; the maps have 38, 19, 10, 5, 3 and 1 pixels a side and 8732 boxes
# in total.
_CHANNELS = (1024, 512, 512, 256, 256, 256)
_BOXES = (4, 6, 6, 6, 4, 4)
# Channels between the two convolutions of each further map, and stride and padding of the second.
_FURTHER = ((256, 2, 1), (256, 2, 1), (128, 2, 1), (128, 1, 0), (128, 1, 0))


class SSD300(nn.Module):
    """Single shot detector (Liu et al., 2016, arXiv 1512.02325) on a ResNet-50 cut after conv4.

    The model is SSD300 v1.1 of DeepLearningExamples: strides of conv4 are 1, and the convolutions
    after the backbone have batch norms.

    Args:
        num_classes: Number of classes, including the background (default 81, as in COCO).
    """

    def __init__(self, num_classes: int = 81) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.backbone = trunk(ResNetSize(blocks=(3, 4, 6), strides=(1, 2, 1)))
        self.further = nn.ModuleList(
            nn.Sequential(
                conv_norm(inputs, between),
                conv_norm(between, outputs, 3, stride, padding=padding),
            )
            for inputs, outputs, (between, stride, padding) in zip(
                _CHANNELS[:-1], _CHANNELS[1:], _FURTHER, strict=True
            )
        )
        self.places = _heads(4)
        self.scores = _heads(num_classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions (batch, 4, boxes) and scores (batch, classes, boxes) of all boxes.

        Args:
            images: Images (batch, 3, 300, 300).
        """
        maps = [self.backbone(images)]
        for further in self.further:
            maps.append(further(maps[-1]))
        places = [head(x).reshape(len(x), 4, -1) for head, x in zip(self.places, maps, strict=True)]
        scores = [
            head(x).reshape(len(x), self.num_classes, -1)
            for head, x in zip(self.scores, maps, strict=True)
        ]
        return torch.cat(places, dim=2), torch.cat(scores, dim=2)


def _heads(numbers: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Conv2d(channels, boxes * numbers, 3, padding=1)
        for channels, boxes in zip(_CHANNELS, _BOXES, strict=True)
    )
