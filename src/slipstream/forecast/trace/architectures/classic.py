"""Sequential convolutional networks: AlexNet and VGG."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from slipstream.forecast.trace.architectures.convolutions import relu

# Numbers of convolutions with 64, 128, 256, 512 and 512 channels, by depth of the network.
_VGG_STAGES = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_VGG_CHANNELS = (64, 128, 256, 512, 512)


class AlexNet(nn.Module):
    """AlexNet with one tower (Krizhevsky, 2014: "One weird trick", arXiv 1404.5997).

    Args:
        num_classes: Number of classes.
        dropout: Dropout probability before each of the first two linear layers.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        pool = partial(nn.MaxPool2d, 3, 2)
        self.features = nn.Sequential(
            *_conv(3, 64, 11, stride=4, padding=2),
            pool(),
            *_conv(64, 192, 5),
            pool(),
            *_conv(192, 384, 3),
            *_conv(384, 256, 3),
            *_conv(256, 256, 3),
            pool(),
            nn.AdaptiveAvgPool2d(6),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            relu(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            relu(),
            nn.Linear(4096, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, 224, 224)."""
        return self.classifier(self.features(images))


class VGG(nn.Module):
    """VGG without batch norm (Simonyan and Zisserman, 2015, arXiv 1409.1556).

    Args:
        depth: Number of layers with weights: 11, 16 or 19.
        num_classes: Number of classes.
        dropout: Dropout probability after each of the first two linear layers.
    """

    def __init__(self, depth: int, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for convolutions, channels in zip(_VGG_STAGES[depth], _VGG_CHANNELS, strict=True):
            for _ in range(convolutions):
                layers += _conv(inputs, channels, 3)
                inputs = channels
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7))
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(512 * 7 * 7, 4096),
            relu(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            relu(),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, 224, 224)."""
        return self.classifier(self.features(images))


def _conv(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: int | None = None
) -> list[nn.Module]:
    around = kernel // 2 if padding is None else padding
    return [nn.Conv2d(inputs, outputs, kernel, stride, around), relu()]
