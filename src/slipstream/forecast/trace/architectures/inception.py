"""Networks of parallel branches: GoogLeNet and Inception v3, without auxiliary heads."""

from __future__ import annotations

from torch import Tensor, nn

from slipstream.forecast.trace.architectures.convolutions import Branches, conv_norm

# Output channels of the convolutions of each module of GoogLeNet: a 1x1 convolution; two pairs of a
# 1x1 and a 3x3 convolution; the 1x1 convolution after the pooling. None stands for a pooling
# between modules.
_GOOGLENET: tuple[tuple[int, int, int, int, int, int] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class GoogLeNet(nn.Module):
    """GoogLeNet (Szegedy et al., 2015, arXiv 1409.4842) as torchvision trains it.

    The network of torchvision has batch norms, and 3x3 convolutions instead of the paper's 5x5
    convolutions.

    Args:
        num_classes: Number of classes.
        dropout: Dropout probability before the last linear layer.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            conv_norm(3, 64, 7, 2),
            _halve(),
            conv_norm(64, 64),
            conv_norm(64, 192, 3),
            _halve(),
        ]
        channels = 192
        for widths in _GOOGLENET:
            if widths is None:
                layers.append(_halve())
                continue
            layers.append(_googlenet_module(channels, widths))
            channels = widths[0] + widths[2] + widths[4] + widths[5]
        self.features = nn.Sequential(*layers)
        self.classifier = _classifier(channels, num_classes, dropout)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, 224, 224)."""
        return self.classifier(self.features(images))


class InceptionV3(nn.Module):
    """Inception v3 (Szegedy et al., 2016, arXiv 1512.00567).

    Args:
        num_classes: Number of classes.
        dropout: Dropout probability before the last linear layer.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 32, 3, 2, padding=0),
            conv_norm(32, 32, 3, padding=0),
            conv_norm(32, 64, 3),
            nn.MaxPool2d(3, 2),
            conv_norm(64, 80),
            conv_norm(80, 192, 3, padding=0),
            nn.MaxPool2d(3, 2),
        )
        self.modules_35 = nn.Sequential(_square(192, 32), _square(256, 64), _square(288, 64))
        self.modules_17 = nn.Sequential(
            _square_to_long(288), *(_long(768, width) for width in (128, 160, 160, 192))
        )
        self.modules_8 = nn.Sequential(_long_to_wide(768), _wide(1280), _wide(2048))
        self.classifier = _classifier(2048, num_classes, dropout)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, 299, 299)."""
        x = self.modules_35(self.stem(images))
        return self.classifier(self.modules_8(self.modules_17(x)))


def _classifier(channels: int, num_classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(channels, num_classes),
    )


def _halve() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def _googlenet_module(inputs: int, widths: tuple[int, int, int, int, int, int]) -> Branches:
    single, before1, pair1, before2, pair2, pooled = widths
    return Branches(
        conv_norm(inputs, single),
        nn.Sequential(conv_norm(inputs, before1), conv_norm(before1, pair1, 3)),
        nn.Sequential(conv_norm(inputs, before2), conv_norm(before2, pair2, 3)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(inputs, pooled)),
    )


def _averaged(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_norm(inputs, outputs))


def _square(inputs: int, pooled: int) -> Branches:
    """Return the module of Inception v3 (figure 5) in which one branch keeps a 5x5 convolution."""
    return Branches(
        conv_norm(inputs, 64),
        nn.Sequential(conv_norm(inputs, 48), conv_norm(48, 64, 5)),
        nn.Sequential(conv_norm(inputs, 64), conv_norm(64, 96, 3), conv_norm(96, 96, 3)),
        _averaged(inputs, pooled),
    )


def _square_to_long(inputs: int) -> Branches:
    return Branches(
        conv_norm(inputs, 384, 3, 2, padding=0),
        nn.Sequential(
            conv_norm(inputs, 64), conv_norm(64, 96, 3), conv_norm(96, 96, 3, 2, padding=0)
        ),
        nn.MaxPool2d(3, 2),
    )


def _long(inputs: int, width: int) -> Branches:
    """Return the module of Inception v3 (figure 6) with 1x7 and 7x1 instead of 7x7 kernels."""
    return Branches(
        conv_norm(inputs, 192),
        nn.Sequential(
            conv_norm(inputs, width),
            conv_norm(width, width, (1, 7)),
            conv_norm(width, 192, (7, 1)),
        ),
        nn.Sequential(
            conv_norm(inputs, width),
            conv_norm(width, width, (7, 1)),
            conv_norm(width, width, (1, 7)),
            conv_norm(width, width, (7, 1)),
            conv_norm(width, 192, (1, 7)),
        ),
        _averaged(inputs, 192),
    )


def _long_to_wide(inputs: int) -> Branches:
    return Branches(
        nn.Sequential(conv_norm(inputs, 192), conv_norm(192, 320, 3, 2, padding=0)),
        nn.Sequential(
            conv_norm(inputs, 192),
            conv_norm(192, 192, (1, 7)),
            conv_norm(192, 192, (7, 1)),
            conv_norm(192, 192, 3, 2, padding=0),
        ),
        nn.MaxPool2d(3, 2),
    )


def _wide(inputs: int) -> Branches:
    """Return the module of Inception v3 (figure 7) in which two branches split once more."""
    return Branches(
        conv_norm(inputs, 320),
        nn.Sequential(conv_norm(inputs, 384), _crossed(384)),
        nn.Sequential(conv_norm(inputs, 448), conv_norm(448, 384, 3), _crossed(384)),
        _averaged(inputs, 192),
    )


def _crossed(channels: int) -> Branches:
    return Branches(conv_norm(channels, channels, (1, 3)), conv_norm(channels, channels, (3, 1)))
