"""Train a digit classifier with Horovod's API; only one import line names Slipstream.

    slipstream run -n 2 examples/02_horovod/digits.py

The script draws the digits, as on a display of seven segments. The segments have random brightness,
the digits have random positions, and noise is added.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import slipstream.horovod.torch as hvd

SIDE = 28  # pixels
# Rows and columns of the segments a to g: clockwise from the top, then the middle one.
SEGMENTS = (
    (slice(5, 8), slice(9, 19)),
    (slice(5, 14), slice(16, 19)),
    (slice(13, 22), slice(16, 19)),
    (slice(19, 22), slice(9, 19)),
    (slice(13, 22), slice(9, 12)),
    (slice(5, 14), slice(9, 12)),
    (slice(12, 15), slice(9, 19)),
)
LIT = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step")
    parser.add_argument(
        "--images", type=int, default=8192, help="number of training images, over all ranks"
    )
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as fp16")
    return parser.parse_args()


def draw_digits(count: int, seed: int) -> TensorDataset:
    """Return images [count, 1, 28, 28] with labels; equal seeds give equal images."""
    generator = torch.Generator().manual_seed(seed)
    strokes = torch.zeros(len(SEGMENTS), SIDE, SIDE)
    for stroke, segment in zip(strokes, SEGMENTS, strict=True):
        stroke[segment] = 1
    lit = torch.tensor([[float(name in names) for name in "abcdefg"] for names in LIT])

    labels = torch.randint(10, (count,), generator=generator)
    brightness = lit[labels] * (0.5 + 0.5 * torch.rand(count, 7, generator=generator))
    images = torch.einsum("ns,shw->nhw", brightness, strokes).clamp(max=1)
    shifts = torch.randint(-3, 4, (2, count, 1), generator=generator)
    rows, columns = (torch.arange(SIDE) + shifts).remainder(SIDE)
    images = images[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    images += 0.2 * torch.randn(images.shape, generator=generator)
    return TensorDataset(images[:, None], labels)


def load(dataset: TensorDataset, batch_size: int, *, shuffle: bool) -> DataLoader:
    """Return a loader of this rank's share of the data set."""
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=shuffle)
    return DataLoader(dataset, batch_size, sampler=sampler)


def make_model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def average(value: Tensor, name: str) -> float:
    """Return the average of a number over all ranks."""
    return hvd.allreduce(value, name=name).item()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> float:
    """Train for one epoch, and return the loss, averaged over steps and ranks."""
    model.train()
    total = torch.zeros(())
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return average(total / len(loader), "loss")


@torch.no_grad()
def test(model: nn.Module, loader: DataLoader) -> float:
    """Return the accuracy on the images of all ranks."""
    model.eval()
    right = torch.cat([model(images).argmax(1) == labels for images, labels in loader])
    return average(right.float().mean(), "accuracy")


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(arguments.seed + hvd.rank())

    train_loader = load(draw_digits(arguments.images, 1), arguments.batch_size, shuffle=True)
    test_loader = load(draw_digits(1024, 2), 256, shuffle=False)

    model = make_model()
    # A step of n ranks has n times the images, so the learning rate is n times that of one rank.
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
    )

    for epoch in range(1, arguments.epochs + 1):
        train_loader.sampler.set_epoch(epoch)
        loss = train(model, optimizer, train_loader)
        accuracy = test(model, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
