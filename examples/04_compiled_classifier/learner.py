"""The training of one worker: batches, steps and tests."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from augment import augmix, randaugment
from corrupt import CORRUPTIONS
from network import resnet26d
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[1] / "01_fashion_mnist"))
from data import augment, load, normalise  # of the first example

WARM_UP = 0.15  # share of the training in which the learning rate rises
JSD_WEIGHT = 12.0  # as in the paper on AugMix

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The parameters of a training.

    Args:
        epochs: Number of epochs.
        batch_size: Images per worker and step.
        peak_rate: Highest learning rate; the rate rises to it, and then falls as a cosine.
        seed: Seed of the initial weights, the order of the images and their changes.
        limit: Number of images of each split to use; None uses all.
        smoothing: Share of the target that is spread over all classes; 0 turns it off.
        randaugment: True to change the images by RandAugment.
        augmix: True to classify two mixtures of each image too, with a Jensen-Shannon loss
            that makes the predictions agree.
        bf16: True to compute products in bfloat16.
    """

    epochs: int
    batch_size: int
    peak_rate: float
    seed: int
    limit: int | None
    smoothing: float
    randaugment: bool
    augmix: bool
    bf16: bool


class Learner:
    """The training of one worker: its network, and its share of the images."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        torch.manual_seed(recipe.seed)
        self.rank, self.num_workers = dist.get_rank(), dist.get_world_size()
        self.images, self.labels = load("train", recipe.limit)
        self.test_images, self.test_labels = load("t10k", recipe.limit)
        self.num_steps = len(self.images) // (recipe.batch_size * self.num_workers)
        self.network = resnet26d()
        self.model = DistributedDataParallel(self.network)
        # Steps send gradients only; the statistics of batch norms are averaged before a test.
        self.model.broadcast_buffers = False
        self.optimizer = torch.optim.SGD(
            _groups(self.network), recipe.peak_rate, momentum=0.9, nesterov=True
        )

    def train(self, say: Say) -> None:
        """Train for all epochs."""
        begin = time.monotonic()
        for epoch in range(self.recipe.epochs):
            self.model.train()
            loss = torch.zeros(())
            for step, (views, labels) in enumerate(self.batches(epoch)):
                self.set_rate((epoch + step / self.num_steps) / self.recipe.epochs)
                loss = self.step(views, labels)
                if step % 100 == 0:
                    seconds = time.monotonic() - begin
                    say(
                        f"epoch {epoch + 1} step {step}/{self.num_steps} {loss:.3f} {seconds:.0f} s"
                    )
            say(f"epoch {epoch + 1} of {self.recipe.epochs}: loss {loss:.4f}")

    def batches(self, epoch: int) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Yield this worker's batches of one epoch: views of the same images, and their labels.

        All workers draw the same order and divide it, so together they see each image once.
        """
        seed, size = self.recipe.seed * 1000 + epoch, self.recipe.batch_size
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(seed))
        share = order[self.rank :: self.num_workers]
        generator = torch.Generator().manual_seed(seed * self.num_workers + self.rank)
        random = np.random.default_rng([seed, self.rank])
        for step in range(self.num_steps):
            chosen = share[step * size : (step + 1) * size]
            images = augment(self.images[chosen], generator)
            yield self.views(images, random), self.labels[chosen]

    def views(self, images: Tensor, random: np.random.Generator) -> list[Tensor]:
        """Return the views of images that are classified: one, or three with AugMix."""
        pixels = images[:, 0].numpy()
        views = [randaugment(pixels, random) if self.recipe.randaugment else pixels]
        if self.recipe.augmix:
            views += [augmix(pixels, random) for _ in range(2)]
        return [normalise(torch.from_numpy(view)[:, None]) for view in views]

    def step(self, views: list[Tensor], labels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.bf16):
            logits = self.model(torch.cat(views)).float().split(len(labels))
        loss = functional.cross_entropy(logits[0], labels, label_smoothing=self.recipe.smoothing)
        if len(views) > 1:
            loss = loss + JSD_WEIGHT * divergence([part.log_softmax(1) for part in logits])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def set_rate(self, done: float) -> None:
        """Set the learning rate for a share of the training that is done, 0 to 1."""
        rise = done / WARM_UP
        fall = 0.5 + 0.5 * math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.peak_rate * (rise if rise < 1 else fall)

    @torch.no_grad()
    def accuracy(self, images: Tensor) -> float:
        """Return the accuracy on the test images, or on corrupted ones.

        Every worker classifies its share of them.
        """
        self.network.eval()
        hits = torch.zeros(())
        mine = slice(self.rank, None, self.num_workers)
        parts = zip(images[mine].split(500), self.test_labels[mine].split(500), strict=True)
        for part, targets in parts:
            hits += (self.network(normalise(part)).argmax(1) == targets).sum()
        dist.all_reduce(hits)
        return hits.item() / len(images)

    def test(self) -> dict[str, float]:
        """Return the accuracies: "clean", each corruption by name, and their mean, "corrupted"."""
        average_statistics(self.network)
        pixels = self.test_images[:, 0].numpy()
        accuracies = {
            name: self.accuracy(torch.from_numpy(corrupt(pixels))[:, None])
            for name, corrupt in CORRUPTIONS.items()
        }
        mean = sum(accuracies.values()) / len(accuracies)
        return {"clean": self.accuracy(self.test_images), "corrupted": mean, **accuracies}


def divergence(logs: list[Tensor]) -> Tensor:
    """Return the Jensen-Shannon divergence of several predictions of the same images, in nats.

    Args:
        logs: Logarithms of the predicted probabilities, each [batch, classes].
    """
    mean = torch.stack(logs).exp().mean(0).clamp(1e-7, 1).log()
    parts = [functional.kl_div(mean, log, reduction="batchmean", log_target=True) for log in logs]
    return torch.stack(parts).mean()


def average_statistics(network: nn.Module) -> None:
    """Replace batch norm statistics by their mean over all workers."""
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def _groups(network: nn.Module) -> list[dict[str, object]]:
    """Return the parameter groups: matrices with weight decay, biases and norms without."""
    matrices = [weight for weight in network.parameters() if weight.ndim > 1]
    others = [weight for weight in network.parameters() if weight.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": 5e-4},
        {"params": others, "weight_decay": 0.0},
    ]
