"""Train ResNet-50 on folders of images with Horovod's API; only one line names Slipstream.

    slipstream run -n 2 examples/02_horovod/resnet50.py images --generate

The images are train/CLASS/NAME.ppm and val/CLASS/NAME.ppm in the folder; --generate makes a small
set of coloured stripes. After each epoch, rank 0 writes a checkpoint to the folder. The same
command with more --epochs continues from the last checkpoint.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from stripes import ImageFolder, generate
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import slipstream.horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="folder of images and checkpoints")
    add("--generate", action="store_true", help="make the images if there are none")
    add("--classes", type=int, default=4, help="number of classes to generate")
    add("--images", type=int, default=128, help="number of images to generate for each class")
    add("--image-size", type=int, default=32, help="pixels of a side of a generated image")
    add("--epochs", type=int, default=4)
    add("--batch-size", type=int, default=8, help="images of a rank in a pass")
    add("--batches-per-allreduce", type=int, default=1, help="passes in a step")
    add("--base-lr", type=float, default=0.003, help="learning rate for one batch")
    add("--warmup-epochs", type=float, default=1, help="epochs in which the rate rises")
    add("--width", type=int, default=64, help="channels of the first layer; ResNet-50 has 64")
    add("--sync-batch-norm", action="store_true", help="normalise over the batches of all ranks")
    add("--fp16-allreduce", action="store_true", help="send gradients as fp16")
    return parser.parse_args()


Norm = Callable[[int], nn.Module]


def convolution(inputs: int, outputs: int, size: int, stride: int, norm: Norm) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [layer, norm(outputs)]


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 (four times the channels) beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(*convolution(inputs, width, 1, 1, norm), nn.ReLU()),
            *(*convolution(width, width, 3, stride, norm), nn.ReLU()),
            *convolution(width, 4 * width, 1, 1, norm),
        )
        nn.init.zeros_(self.body[-1].weight)  # initially the block equals its shortcut
        resized = stride != 1 or inputs != 4 * width
        shortcut = convolution(inputs, 4 * width, 1, stride, norm) if resized else []
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet50(num_classes: int, width: int, norm: Norm) -> nn.Module:
    """Build the network: 50 layers with weights, from images to logits."""
    layers = [*convolution(3, width, 7, 2, norm), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    channels = width
    for stage, num_blocks in enumerate((3, 4, 6, 3)):
        for block in range(num_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(channels, width << stage, stride, norm))
            channels = 4 * (width << stage)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)]
    return nn.Sequential(*layers)


def learning_rate(arguments: argparse.Namespace, epoch: float) -> float:
    """Return the rate: it rises to that of all batches, then falls to a tenth three times."""
    batches = hvd.size() * arguments.batches_per_allreduce
    warmth = min(1.0, epoch / arguments.warmup_epochs) if arguments.warmup_epochs else 1.0
    decays = sum(epoch >= decay_epoch for decay_epoch in (30, 60, 80))
    return arguments.base_lr * (1 + (batches - 1) * warmth) * 0.1**decays


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    arguments: argparse.Namespace,
    epoch: int,
) -> float:
    """Train for one epoch, and return the mean loss of all ranks."""
    model.train()
    loader.sampler.set_epoch(epoch)
    total = torch.zeros(())
    for step, (images, labels) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(arguments, epoch + step / len(loader))
        optimizer.zero_grad()
        parts = images.split(arguments.batch_size), labels.split(arguments.batch_size)
        for part, targets in zip(*parts, strict=True):
            loss = functional.cross_entropy(model(part), targets) / len(parts[0])
            loss.backward()  # the gradients of all parts add up; the last pass sends them
            total += loss.detach()
        optimizer.step()
    return hvd.allreduce(total / max(1, len(loader)), name="loss").item()


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    """Return the accuracy on the images of all ranks."""
    model.eval()
    right = torch.cat([model(images).argmax(1) == labels for images, labels in loader])
    return hvd.allreduce(right.float().mean(), name="accuracy").item()


def checkpoint(arguments: argparse.Namespace, epoch: int) -> Path:
    return arguments.folder / f"checkpoint-{epoch}.pt"


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(hvd.rank())
    if arguments.generate and hvd.rank() == 0 and not (arguments.folder / "train").exists():
        generate(
            arguments.folder,
            num_classes=arguments.classes,
            num_images=arguments.images,
            size=arguments.image_size,
        )
    hvd.barrier()

    train_set = ImageFolder(arguments.folder / "train", turned=True)
    val_set = ImageFolder(arguments.folder / "val", turned=False)
    share = {"num_replicas": hvd.size(), "rank": hvd.rank()}
    step_size = arguments.batch_size * arguments.batches_per_allreduce
    train_loader = DataLoader(
        train_set, step_size, sampler=DistributedSampler(train_set, **share), drop_last=True
    )
    val_loader = DataLoader(val_set, step_size, sampler=DistributedSampler(val_set, **share))

    norm = hvd.SyncBatchNorm if arguments.sync_batch_norm else nn.BatchNorm2d
    model = resnet50(len(train_set.classes), arguments.width, norm)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=arguments.batches_per_allreduce,
    )

    # Other hosts may not see the checkpoints, so rank 0 decides where to continue.
    epochs_done = [e for e in range(1, arguments.epochs + 1) if checkpoint(arguments, e).exists()]
    begin = hvd.broadcast(
        torch.tensor(max(epochs_done, default=0)), root_rank=0, name="epoch"
    ).item()
    if begin > 0 and hvd.rank() == 0:
        state = torch.load(checkpoint(arguments, begin), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"continues after epoch {begin}")
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(begin, arguments.epochs):
        loss = train(model, optimizer, train_loader, arguments, epoch)
        accuracy = validate(model, val_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, validation accuracy {accuracy:.4f}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, checkpoint(arguments, epoch + 1))


if __name__ == "__main__":
    main()
