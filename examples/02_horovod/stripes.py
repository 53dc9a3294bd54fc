"""Images on disk for resnet50.py: folders of images of stripes, and a data set that reads them."""

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset


def generate(folder: Path, *, num_classes: int, num_images: int, size: int) -> None:
    """Write `num_images` images of each class to train/, and a quarter as many to val/.

    Args:
        folder: Folder for train/CLASS/NAME.ppm and val/CLASS/NAME.ppm.
        num_classes: Number of classes, each with its own direction of stripes.
        num_images: Number of training images of each class.
        size: Side of an image in pixels.
    """
    generator = torch.Generator().manual_seed(1)
    for label in range(num_classes):
        for number in range(num_images + math.ceil(num_images / 4)):
            part = "train" if number < num_images else "val"
            path = folder / part / f"class{label}" / f"{number:04}.ppm"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = draw(math.pi * label / num_classes, size, generator)
            path.write_bytes(b"P6\n%d %d\n255\n" % (size, size) + pixels.numpy().tobytes())


def draw(angle: float, size: int, generator: torch.Generator) -> Tensor:
    """Return an image of stripes, uint8 [size, size, 3], with a random offset for each colour."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    across = (x * math.cos(angle) + y * math.sin(angle))[:, :, None]
    stripes = torch.sin(0.8 * across + 2 * math.pi * torch.rand(3, generator=generator))
    noise = torch.randn(size, size, 3, generator=generator)
    return (127.5 + 70 * stripes + 25 * noise).clamp(0, 255).byte()


class ImageFolder(Dataset):
    """The images in train/ or val/, float [3, height, width] from -1 to 1, with their classes."""

    def __init__(self, folder: Path, *, turned: bool) -> None:
        self.classes = sorted(path.name for path in folder.iterdir())
        self.paths = [p for name in self.classes for p in sorted((folder / name).glob("*.ppm"))]
        self.turned = turned

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        _, shape, _, pixels = path.read_bytes().split(b"\n", 3)
        width, height = map(int, shape.split())
        image = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(height, width, 3)
        image = image.permute(2, 0, 1) / 127.5 - 1
        if self.turned and torch.rand(()) < 0.5:
            image = image.flip(1, 2)  # half a turn: stripes keep their direction
        return image, self.classes.index(path.parent.name)
