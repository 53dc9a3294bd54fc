"""The training loop of one worker: steps, tests, checkpoints."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from data import batches, load, normalise
from meter import CommMeter
from model import small_resnet
from progress import Display, EpochResult, Status
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

SHOW_EVERY_STEPS = 10
WARM_UP = 0.25  # share of the training in which the learning rate rises


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The parameters of a training.

    Args:
        epochs: Number of epochs.
        batch_size: Images per worker and step.
        peak_rate: Highest learning rate.
        seed: Seed of the initial weights, the order of the images and their augmentation.
        limit: Number of images of each split to use; None uses all.
        codec: Codec of gradients between hosts; None sends them exactly (default).
    """

    epochs: int
    batch_size: int
    peak_rate: float
    seed: int
    limit: int | None
    codec: str | None = None


class Trainer:
    """The training of one worker, with the state that a checkpoint stores."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        torch.manual_seed(recipe.seed)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.train_images, self.train_labels = load("train", recipe.limit)
        self.test_images, self.test_labels = load("t10k", recipe.limit)
        self.num_steps = len(self.train_images) // (recipe.batch_size * self.world_size)
        self.network = small_resnet()
        # A bucket is a third of this small model, so the first ones are sent while backward() runs.
        self.model = DistributedDataParallel(self.network, bucket_cap_mb=0.25)
        # Steps send gradients only; the statistics of batch norms are averaged before a test.
        self.model.broadcast_buffers = False
        if recipe.codec:
            from slipstream.torch import compress

            compress(self.model, recipe.codec)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.meter = CommMeter()
        self.num_samples, self.train_seconds = 0, 0.0

    def train_epoch(self, epoch: int, display: Display) -> EpochResult:
        """Train on all images once, then measure the accuracy."""
        self.model.train()
        started = time.monotonic()
        losses: list[Tensor] = []
        for images, labels in batches(
            self.train_images,
            self.train_labels,
            batch_size=self.recipe.batch_size,
            rank=self.rank,
            world_size=self.world_size,
            seed=self.recipe.seed * 1000 + epoch,
        ):
            self.set_rate((epoch - 1 + len(losses) / self.num_steps) / self.recipe.epochs)
            losses.append(self.train_step(images, labels))
            if len(losses) % SHOW_EVERY_STEPS == 0 or len(losses) == self.num_steps:
                loss = global_mean(losses[-SHOW_EVERY_STEPS:])
                display.show(self.status(epoch, len(losses), loss, time.monotonic() - started))
        self.train_seconds += time.monotonic() - started
        self.num_samples += len(losses) * self.recipe.batch_size * self.world_size
        loss, accuracy = global_mean(losses), self.test()
        seconds = time.monotonic() - started
        return EpochResult(epoch=epoch, loss=loss, accuracy=accuracy, seconds=seconds)

    def train_step(self, images: Tensor, labels: Tensor) -> Tensor:
        loss = functional.cross_entropy(self.model(images), labels, label_smoothing=0.1)
        self.optimizer.zero_grad()
        with self.meter:
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    def set_rate(self, done: float) -> None:
        """Raise the learning rate linearly to its peak, then lower it to zero.

        Args:
            done: Share of the whole training that is done, 0 to 1.
        """
        factor = done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.peak_rate * factor

    @torch.no_grad()
    def test(self) -> float:
        """Return the accuracy on the test images; every worker classifies its share of them."""
        average_statistics(self.network)
        self.network.eval()
        images = self.test_images[self.rank :: self.world_size]
        labels = self.test_labels[self.rank :: self.world_size]
        hits = torch.zeros(())
        for part, targets in zip(images.split(500), labels.split(500), strict=True):
            hits += (self.network(normalise(part)).argmax(1) == targets).sum()
        dist.all_reduce(hits)
        return hits.item() / len(self.test_labels)

    def status(self, epoch: int, step: int, loss: float, seconds: float) -> Status:
        steps_left = (self.recipe.epochs - epoch + 1) * self.num_steps - step
        return Status(
            epoch=epoch,
            num_epochs=self.recipe.epochs,
            step=step,
            num_steps=self.num_steps,
            loss=loss,
            samples_per_second=step * self.recipe.batch_size * self.world_size / seconds,
            remaining_seconds=steps_left * seconds / step,
            hidden_share=self.meter.hidden_share,
            sent_bytes=self.meter.sent_bytes(),
        )

    def save(self, epoch: int, path: Path) -> None:
        state = {
            "epoch": epoch,
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def restore(self, path: Path) -> int:
        """Load a checkpoint, and return the number of its epochs."""
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["epoch"]


def global_mean(losses: list[Tensor]) -> float:
    """Return the mean of the losses of all workers."""
    mean = torch.stack(losses).mean() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def average_statistics(network: nn.Module) -> None:
    """Replace batch norm statistics by their mean over all workers."""
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()
