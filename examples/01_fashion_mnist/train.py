"""Train a small ResNet on Fashion-MNIST with several workers and DistributedDataParallel.

    slipstream run -n 2 examples/01_fashion_mnist/train.py

It is an ordinary PyTorch script: it also runs under torchrun, and with --backend gloo.
"""

import argparse
import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from data import DataError, batches, fetch, load, normalise
from meter import CommMeter
from model import small_resnet
from progress import Display, EpochResult, Status, format_seconds, open_display
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

SHOW_EVERY_STEPS = 10
WARM_UP = 0.25  # the share of the training in which the learning rate rises


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What can be chosen on the command line."""

    backend: str
    epochs: int
    batch_size: int
    peak_rate: float
    seed: int
    limit: int | None
    threads: int
    output: Path
    terminal: Path | None
    resume: bool


def parse_arguments() -> Config:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="slipstream", help="torch.distributed backend")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="images per worker and step")
    parser.add_argument("--peak-rate", type=float, default=0.1, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="use only so many images of each split")
    parser.add_argument("--threads", type=int, default=1, help="compute threads per worker")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--terminal", type=Path, help="terminal to draw on, if it is not stdout")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    return Config(**vars(parser.parse_args()))


class Trainer:
    """Owns what a checkpoint must hold, and this worker's share of the work."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.train_images, self.train_labels = load("train", config.limit)
        self.test_images, self.test_labels = load("t10k", config.limit)
        self.num_steps = len(self.train_images) // (config.batch_size * self.world_size)
        self.network = small_resnet()
        self.model = DistributedDataParallel(self.network)
        # Batch norm's statistics are averaged before a test; the steps send gradients only.
        self.model.broadcast_buffers = False
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.meter = CommMeter(config.backend)
        self.num_samples, self.train_seconds = 0, 0.0

    def train_epoch(self, epoch: int, display: Display) -> EpochResult:
        """Train on all images once, then test."""
        self.model.train()
        started = time.monotonic()
        losses: list[Tensor] = []
        for images, labels in batches(
            self.train_images,
            self.train_labels,
            batch_size=self.config.batch_size,
            rank=self.rank,
            world_size=self.world_size,
            seed=self.config.seed * 1000 + epoch,
        ):
            self.set_rate((epoch - 1 + len(losses) / self.num_steps) / self.config.epochs)
            losses.append(self.train_step(images, labels))
            if len(losses) % SHOW_EVERY_STEPS == 0 or len(losses) == self.num_steps:
                loss = global_mean(losses[-SHOW_EVERY_STEPS:])
                display.show(self.status(epoch, len(losses), loss, time.monotonic() - started))
        self.train_seconds += time.monotonic() - started
        self.num_samples += len(losses) * self.config.batch_size * self.world_size
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
            done: the share of the whole training that is done, 0 to 1.
        """
        factor = done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.peak_rate * factor

    @torch.no_grad()
    def test(self) -> float:
        """Return the accuracy on the test images; every worker tests its share of them."""
        average_statistics(self.network)
        self.network.eval()
        images = self.test_images[self.rank :: self.world_size]
        labels = self.test_labels[self.rank :: self.world_size]
        hits = torch.zeros(())
        for part, wanted in zip(images.split(500), labels.split(500), strict=True):
            hits += (self.network(normalise(part)).argmax(1) == wanted).sum()
        dist.all_reduce(hits)
        return hits.item() / len(self.test_labels)

    def status(self, epoch: int, step: int, loss: float, seconds: float) -> Status:
        steps_left = (self.config.epochs - epoch + 1) * self.num_steps - step
        return Status(
            epoch=epoch,
            num_epochs=self.config.epochs,
            step=step,
            num_steps=self.num_steps,
            loss=loss,
            samples_per_second=step * self.config.batch_size * self.world_size / seconds,
            remaining_seconds=steps_left * seconds / step,
            hidden_share=self.meter.hidden_share,
            counters=self.meter.counters,
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
        """Load a checkpoint and return the number of epochs that it has seen."""
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["epoch"]


def global_mean(losses: list[Tensor]) -> float:
    """Average this worker's losses with those of all other workers."""
    mean = torch.stack(losses).mean() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def average_statistics(network: nn.Module) -> None:
    """Give every worker the mean of all workers' batch norm statistics."""
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def train(config: Config) -> None:
    started = time.monotonic()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config.output.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        fetch()
    dist.barrier()
    trainer = Trainer(config)
    if trainer.num_steps == 0:
        sys.exit(
            f"error: --limit {config.limit} is less than one batch of all workers, "
            f"{config.batch_size * world_size} images"
        )
    checkpoint = config.output / "checkpoint.pt"
    if config.resume and not checkpoint.exists():
        sys.exit(f"error: --resume found no {checkpoint}; name its folder with --output")
    first = trainer.restore(checkpoint) + 1 if config.resume else 1
    result = None
    title = f"Fashion-MNIST on {world_size} workers"
    with closing(open_display(title, rank, config.terminal)) as display:
        for epoch in range(first, config.epochs + 1):
            result = trainer.train_epoch(epoch, display)
            if rank == 0:
                trainer.save(epoch, checkpoint)
            display.finish_epoch(result)
    if rank == 0 and result is not None:
        report(trainer, result, time.monotonic() - started)


def report(trainer: Trainer, result: EpochResult, seconds: float) -> None:
    """Print what the training came to, and write the same to result.json."""
    output, rate = trainer.config.output, trainer.num_samples / trainer.train_seconds
    summary = {
        "test_accuracy": result.accuracy,
        "loss": result.loss,
        "epochs": result.epoch,
        "workers": trainer.world_size,
        "seconds": round(seconds, 3),
        "samples_per_second": round(rate, 1),
    }
    (output / "result.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(
        f"test accuracy {result.accuracy:.4f} after {result.epoch} epochs\n"
        f"{format_seconds(seconds)} in total, {rate:,.0f} samples/s on all workers\n"
        f"checkpoint {output / 'checkpoint.pt'}"
    )


def main() -> None:
    config = parse_arguments()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    dist.init_process_group(config.backend)
    try:
        train(config)
    except DataError as error:
        sys.exit(f"error: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
