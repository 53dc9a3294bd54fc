"""Train a small ResNet on Fashion-MNIST with several workers and DistributedDataParallel.

    slipstream run -n 2 examples/01_fashion_mnist/train.py

It is an ordinary PyTorch script, which also runs under torchrun and with --backend gloo.
"""

import argparse
import json
import sys
import time
from contextlib import closing, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from data import DataError, fetch
from meter import recorded_timeline
from progress import EpochResult, format_seconds, open_display
from trainer import Recipe, Trainer


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="slipstream", help="torch.distributed backend")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="images per worker and step")
    parser.add_argument("--peak-rate", type=float, default=0.1, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="number of images of each split to use")
    parser.add_argument("--codec", help="codec of gradients between hosts: fp16, bf16 or int8")
    parser.add_argument("--threads", type=int, default=1, help="compute threads per worker")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    return parser.parse_args()


def prepare(arguments: argparse.Namespace) -> tuple[Trainer, int]:
    """Make the trainer, and return it with the number of its first epoch."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    if dist.get_rank() == 0:
        fetch()
    dist.barrier()
    trainer = Trainer(
        Recipe(
            epochs=arguments.epochs,
            batch_size=arguments.batch_size,
            peak_rate=arguments.peak_rate,
            seed=arguments.seed,
            limit=arguments.limit,
            codec=arguments.codec,
        )
    )
    if trainer.num_steps == 0:
        step_images = arguments.batch_size * dist.get_world_size()
        sys.exit(f"error: --limit {arguments.limit} must be at least one step: {step_images}")
    if not arguments.resume:
        return trainer, 1
    checkpoint = arguments.output / "checkpoint.pt"
    if not checkpoint.exists():
        sys.exit(f"error: --resume found no {checkpoint}; name its folder with --output")
    return trainer, trainer.restore(checkpoint) + 1


def train(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    rank, output = dist.get_rank(), arguments.output
    trainer, first = prepare(arguments)
    result = None
    title = f"Fashion-MNIST on {trainer.world_size} workers"
    with closing(open_display(title, rank)) as display:
        for epoch in range(first, arguments.epochs + 1):
            timeline = recorded_timeline(output / "timeline.json")
            with timeline if epoch == first else nullcontext():
                result = trainer.train_epoch(epoch, display)
            if rank == 0:
                trainer.save(epoch, output / "checkpoint.pt")
            display.finish_epoch(result)
    if rank == 0 and result is not None:
        report(trainer, result, output, time.monotonic() - started)


def report(trainer: Trainer, result: EpochResult, output: Path, seconds: float) -> None:
    """Print the results of the training, and write them to result.json."""
    rate = trainer.num_samples / trainer.train_seconds
    summary = {
        "test_accuracy": result.accuracy,
        "loss": result.loss,
        "epochs": result.epoch,
        "workers": trainer.world_size,
        "seconds": round(seconds, 3),
        "samples_per_second": round(rate, 1),
        "hidden_share": trainer.meter.hidden_share,
    }
    (output / "result.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(
        f"test accuracy {result.accuracy:.4f} after {result.epoch} epochs\n"
        f"{format_seconds(seconds)} in total, {rate:,.0f} samples/s on all workers\n"
        f"checkpoint {output / 'checkpoint.pt'}, timeline {output / 'timeline.json'}"
    )


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    dist.init_process_group(arguments.backend)
    try:
        train(arguments)
    except DataError as error:
        sys.exit(f"error: {error}")
    # All ranks end together: over gloo, the first rank to leave was aborted in 4 of 28 runs.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
