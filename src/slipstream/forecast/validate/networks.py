"""The convolutional network, or vision transformer, that a published measurement names."""

from __future__ import annotations

import re

from slipstream.forecast.validate.row import TableRow

# Patterns for the text of a model, in lower case and with "-" for blanks, each with its
# architecture.
_NETWORKS = (
    (r"\bssd-?300\b", "ssd300"),
    (r"\b(se-)?resnext-?101(?:-32x4d)?\b", r"\1resnext101-32x4d"),
    (r"\bresnet-?(18|34)\b", r"resnet\1"),
    (r"\befficientnet-?(?:quant-)?(widese-)?(b[0-7])\b", r"efficientnet-\1\2"),
    (r"\binception-?v3\b", "inception-v3"),
    (r"\bgoogle-?net\b|\binception-?v1\b", "googlenet"),
    (r"\balexnet\b", "alexnet"),
    (r"\bvgg-?19-22k\b", "vgg19-22k"),
    (r"\bvgg-?(11|16|19)\b", r"vgg\1"),
    (r"\bmobilenet-?v2\b", "mobilenet-v2"),
    (r"\bmobilenet-?v3(?:-large)?\b", "mobilenet-v3-large"),
    (r"\bvit-?(tiny|small|base|large)-?/?(?:patch)?-?(16|32)\b", r"vit-\1-\2"),
)
_RESNET = re.compile(r"\bresnet-?(50|101|152)(?:-?v(1\.5|1))?\b")
# Runtimes whose ResNets have the stride in the first 1x1 convolution (version 1), as in
# tf_cnn_benchmarks and Caffe.
_FIRST_VERSION = ("tensorflow1", "horovod", "caffe")


def network(text: str, row: TableRow, runtime: str) -> tuple[str, tuple[str, ...]] | None:
    """Return an architecture's name and the names of assumed values; None if no name matches.

    Args:
        text: Model as the publisher describes it, in lower case and with "-" for blanks.
        row: Published measurement, as a row of text.
        runtime: Name of the framework's variant that trains the network.
    """
    for pattern, name in _NETWORKS:
        if match := re.search(pattern, text):
            return match.expand(name), ()
    match = _RESNET.search(text)
    if match is None:
        return None
    depth, version = match.groups()
    if version:
        return f"resnet{depth}{'-v1' if version == '1' else ''}", ()
    # tensorpack's ResNet is Facebook's version, which has the stride in the 3x3 convolution.
    first = runtime in _FIRST_VERSION and "tensorpack" not in row.words
    return f"resnet{depth}{'-v1' if first else ''}", ("version",)
