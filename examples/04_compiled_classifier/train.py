"""Train a ResNet-26-D on Fashion-MNIST; compile.py compiles its checkpoint.

    slipstream run -n 2 examples/04_compiled_classifier/train.py

Label smoothing, RandAugment and AugMix with Jensen-Shannon consistency can each be turned off.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from learner import Learner, Recipe

sys.path.append(str(Path(__file__).resolve().parents[1] / "01_fashion_mnist"))
from data import DataError, fetch  # of the first example


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--backend", default="slipstream", help="torch.distributed backend")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="images per worker and step")
    parser.add_argument("--peak-rate", type=float, default=0.1, help="highest learning rate")
    parser.add_argument(
        "--smoothing", type=float, default=0.1, help="label smoothing; 0 turns it off"
    )
    parser.add_argument("--randaugment", action=switch, default=True)
    parser.add_argument(
        "--augmix", action=switch, default=True, help="use AugMix with a Jensen-Shannon loss"
    )
    parser.add_argument("--bf16", action=switch, default=False, help="compute in bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="number of images of each split to use")
    parser.add_argument("--threads", type=int, default=1, help="compute threads per worker")
    parser.add_argument("--output", type=Path, default=Path("classifier"))
    return parser.parse_args()


def train(arguments: argparse.Namespace) -> None:
    begin = time.monotonic()
    is_first = dist.get_rank() == 0
    if is_first:
        arguments.output.mkdir(parents=True, exist_ok=True)
        fetch()
    dist.barrier()
    named = {name: getattr(arguments, name) for name in Recipe.__dataclass_fields__}
    learner = Learner(Recipe(**named))
    if learner.num_steps == 0:
        least = arguments.batch_size * dist.get_world_size()
        sys.exit(f"error: --limit {arguments.limit} must be at least one step: {least}")
    learner.train(lambda text: print(text, flush=True) if is_first else None)
    accuracies = learner.test()
    if is_first:
        torch.save(learner.network.state_dict(), arguments.output / "classifier.pt")
        seconds = round(time.monotonic() - begin, 1)
        result = {"recipe": named, "seconds": seconds, "accuracy": accuracies}
        (arguments.output / "result.json").write_text(json.dumps(result, indent=2) + "\n")
        words = "  ".join(f"{name} {share:.4f}" for name, share in accuracies.items())
        print(f"test accuracy: {words}\n{arguments.output / 'classifier.pt'} after {seconds:.0f} s")


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    dist.init_process_group(arguments.backend)
    try:
        train(arguments)
    except DataError as error:
        sys.exit(f"error: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
