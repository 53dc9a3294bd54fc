"""Check the GreenNet claim: a large batch with a scaled rate trains as well as one worker.

    python benchmarks/greennet.py

The script trains the Fashion-MNIST example on 1, 2 and 4 workers with three seeds. The batch per
worker stays the same, so the global batch grows with the number of workers. The peak learning rate
grows with it, after a linear warm-up. The measure is the area under the ROC curve of each class
against the other classes. The claim holds if, for every class, the mean over the seeds is within
0.002 of the mean of one worker.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "01_fashion_mnist"))
from data import normalise
from progress import Silence
from trainer import Recipe, Trainer

CLASSES = (
    "T-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "boot",
)  # fmt: skip
TOLERANCE = 0.002


def roc_auc(scores: Tensor, positive: Tensor) -> float:
    """Return the probability that a positive example scores higher than a negative one.

    Args:
        scores: Scores of the examples, float [n].
        positive: Labels, bool [n], with at least one True and one False.
    """
    _, level, count = scores.unique(return_inverse=True, return_counts=True)
    mean_rank = count.cumsum(0) - (count - 1) / 2.0  # tied scores share their mean rank
    num_positive = int(positive.sum())
    num_negative = len(scores) - num_positive
    rank_sum = mean_rank[level][positive].double().sum().item()
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


@torch.no_grad()
def score_test_images(trainer: Trainer) -> Tensor:
    """Return the class probabilities [n, 10] of all test images, on every worker."""
    trainer.network.eval()
    scores = torch.zeros(len(trainer.test_labels), 10, dtype=torch.float64)
    mine = scores[trainer.rank :: trainer.world_size]
    images = trainer.test_images[trainer.rank :: trainer.world_size]
    logits = torch.cat([trainer.network(normalise(part)) for part in images.split(500)])
    mine.copy_(logits.double().softmax(1))  # fp32 would round the highest scores to 1, a tie
    dist.all_reduce(scores)
    return scores


def work(arguments: argparse.Namespace) -> None:
    """Train as one worker; rank 0 writes the areas of all classes."""
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    recipe = Recipe(
        epochs=arguments.epochs,
        batch_size=64,
        peak_rate=0.05 * dist.get_world_size(),
        seed=arguments.seed,
        limit=arguments.limit,
    )
    trainer = Trainer(recipe)
    losses = [trainer.train_epoch(epoch, Silence()).loss for epoch in range(1, recipe.epochs + 1)]
    scores = score_test_images(trainer)
    if dist.get_rank() == 0:
        areas = [roc_auc(scores[:, k], trainer.test_labels == k) for k in range(len(CLASSES))]
        arguments.worker.write_text(json.dumps({"losses": losses, "auc": areas}))
    dist.destroy_process_group()


def launch(arguments: argparse.Namespace, num_workers: int, seed: int, result: Path) -> None:
    """Train with `num_workers` workers, and block until they have ended."""
    options = [f"--seed={seed}", f"--epochs={arguments.epochs}", f"--backend={arguments.backend}"]
    if arguments.limit is not None:
        options.append(f"--limit={arguments.limit}")
    slipstream = str(Path(sys.executable).with_name("slipstream"))
    command = [slipstream, "run", "-n", str(num_workers), __file__, "--worker", str(result)]
    subprocess.run([*command, *options], check=True)


def run_all(arguments: argparse.Namespace) -> dict[int, list[list[float]]]:
    """Return areas [seed][class] by number of workers; finished trainings are not repeated."""
    console = Console(stderr=True)
    areas: dict[int, list[list[float]]] = {}
    for num_workers in arguments.workers:
        for seed in range(arguments.seeds):
            result = arguments.output / f"workers-{num_workers}-seed-{seed}.json"
            if not result.exists():
                console.print(f"training with {num_workers} workers, seed {seed}")
                launch(arguments, num_workers, seed, result)
            areas.setdefault(num_workers, []).append(json.loads(result.read_text())["auc"])
    return areas


def report(areas: dict[int, list[list[float]]], output: Path) -> float:
    """Print the table, write summary.json, and return the largest difference to one worker."""
    means = {n: torch.tensor(runs, dtype=torch.float64).mean(0) for n, runs in areas.items()}
    spread = torch.tensor(areas[1], dtype=torch.float64)
    differences = torch.stack([(mean - means[1]).abs() for mean in means.values()]).amax(0)
    table = Table(title=f"ROC AUC of each class against the others, mean of {len(areas[1])} seeds")
    table.add_column("class")
    for num_workers in areas:
        table.add_column(f"{num_workers} workers", justify="right")
    table.add_column("difference", justify="right")
    table.add_column("spread of seeds", justify="right")
    for k, name in enumerate(CLASSES):
        cells = [f"{mean[k]:.5f}" for mean in means.values()]
        seeds = (spread[:, k].max() - spread[:, k].min()).item()
        table.add_row(name, *cells, f"{differences[k]:.5f}", f"{seeds:.5f}")
    Console().print(table)
    worst = differences.max().item()
    summary = {"auc": areas, "largest_difference": worst, "tolerance": TOLERANCE}
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="slipstream", help="torch.distributed backend")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--limit", type=int, help="number of images of each split to use")
    parser.add_argument("--output", type=Path, default=Path("build/greennet"))
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    worst = report(run_all(arguments), arguments.output)
    verdict = "holds" if worst <= TOLERANCE else "does not hold"
    print(f"largest difference to one worker {worst:.5f}, allowed {TOLERANCE}: the claim {verdict}")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
