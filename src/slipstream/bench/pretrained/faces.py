"""R-Net and O-Net of facenet-pytorch, which decide whether a small image shows a face.

R-Net and O-Net are the second and third stage of MTCNN (Zhang et al., "Joint Face Detection and
Alignment using Multi-task Cascaded Convolutional Networks", 2016). The networks are defined in this
module, because the module of facenet-pytorch imports torchvision. The weights come from
facenet-pytorch.
"""

# The type stubs of PyTorch and NumPy leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from slipstream.bench.pretrained.case import Array, Module, Pretrained, Run, Task
from slipstream.bench.pretrained.packages import package_file

NUM_FACES = 100  # the first 100 of the 200 images of scikit-image's lfw_subset show faces
FLIPS = 2  # each image is used unchanged and mirrored


class FaceStage(nn.Module):
    """Convolutions with PReLU and pooling, a dense layer, and a softmax over "no face" and "face".

    Args:
        channels: Number of output channels of each convolution.
        pools: Window size of the max pooling (stride 2) after each convolution; 0 for no pooling.
        hidden: Width of the dense layer.
        flat: Number of inputs of the dense layer.
    """

    def __init__(
        self, channels: tuple[int, ...], pools: tuple[int, ...], hidden: int, flat: int
    ) -> None:
        super().__init__()
        number, before = 0, 3
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (count, pool) in enumerate(zip(channels, pools, strict=True), start=1):
            size = 2 if number == len(channels) else 3
            layers[f"conv{number}"] = nn.Conv2d(before, count, size)
            layers[f"prelu{number}"] = nn.PReLU(count)
            if pool:
                layers[f"pool{number}"] = nn.MaxPool2d(pool, 2, ceil_mode=True)
            before = count
        self.body = nn.Sequential(layers)
        self.dense = nn.Linear(flat, hidden)
        self.activation = nn.PReLU(hidden)
        self.decision = nn.Linear(hidden, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Map images, float32 [batch, 3, side, side] from -1 to 1, to probabilities [batch, 2]."""
        x = self.body(images).permute(0, 3, 2, 1).flatten(1)
        return self.decision(self.activation(self.dense(x))).softmax(dim=1)

    def take(self, weights: dict[str, Tensor]) -> None:
        """Copy weights from the package's file; outputs for boxes and landmarks are left out."""
        number = 1 + sum(isinstance(layer, nn.Conv2d) for layer in self.body)
        names = {f"dense{number}": "dense", f"prelu{number}": "activation"}
        names[f"dense{number + 1}_1"] = "decision"
        state = self.state_dict()
        for key, tensor in weights.items():
            layer, _, kind = key.partition(".")
            name = f"{names.get(layer, f'body.{layer}')}.{kind}"
            if name in state:
                state[name].copy_(tensor)


def _loaded(name: str, stage: FaceStage, side: int) -> Module:
    path = package_file("facenet_pytorch", f"data/{name}.pt")
    stage.take(torch.load(path, weights_only=True))
    return Module(stage.eval(), {"images": np.zeros((1, 3, side, side), np.float32)})


def refiner() -> Module:
    """Return R-Net, which maps float32 images [1, 3, 24, 24] to probabilities [1, 2]."""
    return _loaded("rnet", FaceStage((28, 48, 64), (3, 3, 0), 128, 576), 24)


def output_stage() -> Module:
    """Return O-Net, which maps float32 images [1, 3, 48, 48] to probabilities [1, 2]."""
    return _loaded("onet", FaceStage((32, 64, 64, 128), (3, 3, 2, 0), 256, 1152), 48)


def images(side: int) -> list[tuple[dict[str, Array], int]]:
    """Return 200 images of faces (class 1) and 200 other images (class 0), in a fixed random order.

    Args:
        side: Height and width of an image in pixels.
    """
    samples: list[tuple[dict[str, Array], int]] = []
    grey_images = np.load(package_file("skimage", "data/lfw_subset.npy"), allow_pickle=False)
    for index, grey in enumerate(grey_images):
        image = Image.fromarray((255 * grey).astype(np.uint8)).resize((side, side))
        for pixels in (np.asarray(image), np.asarray(image)[:, ::-1]):
            numbers = ((pixels - 127.5) / 128).astype(np.float32)
            batch = np.ascontiguousarray(np.broadcast_to(numbers, (1, 3, side, side)))
            samples.append(({"images": batch}, int(index < NUM_FACES)))
    # An image and its mirror image stay together: both are for calibration, or both are held out.
    order = np.random.default_rng(0).permutation(len(grey_images))
    return [samples[FLIPS * number + flip] for number in order for flip in range(FLIPS)]


def _task(side: int) -> Task:
    samples = images(side)
    half = len(samples) // 2

    def judge(run: Run) -> float:
        right = [
            next(iter(run(inputs).values())).argmax() == label for inputs, label in samples[half:]
        ]
        return float(np.mean(right))

    return Task(list(samples[:half]), judge)


FACES = (
    Pretrained(
        name="faces-24",
        title="MTCNN, R-Net",
        package="facenet-pytorch",
        licence="MIT",
        measure="small images classified as face or no face",
        model=refiner,
        task=lambda is_short: _task(24),
    ),
    Pretrained(
        name="faces-48",
        title="MTCNN, O-Net",
        package="facenet-pytorch",
        licence="MIT",
        measure="small images classified as face or no face",
        model=output_stage,
        task=lambda is_short: _task(48),
    ),
)
