"""Train two models at the same time, one on the even ranks and one on the odd ranks.

    slipstream run -n 4 examples/02_horovod/process_sets.py

Each half is a process set of Horovod's API. The halves do not wait for each other: the odd ranks
make twice as many steps. Only one import line names Slipstream.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import slipstream.horovod.torch as hvd

EVEN = hvd.ProcessSet([0, 2])
ODD = hvd.ProcessSet([1, 3])


def train(
    process_set: hvd.ProcessSet, function: Callable[[Tensor], Tensor], num_steps: int
) -> tuple[nn.Module, Tensor]:
    """Fit a small network to a function from -3 to 3, on the ranks of a set.

    Returns:
        The network, and the loss of this rank's last samples.
    """
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.02),
        named_parameters=model.named_parameters(),
        process_set=process_set,
    )
    # root_rank is a rank of the job, also if a process set is passed.
    root = process_set.ranks[0]
    hvd.broadcast_parameters(model.state_dict(), root_rank=root, process_set=process_set)

    loss = torch.zeros(())
    for _ in range(num_steps):
        x = 6 * torch.rand(64, 1) - 3
        optimizer.zero_grad()
        loss = (model(x) - function(x)).square().mean()
        loss.backward()
        optimizer.step()
    return model, loss.detach()


def are_equal(model: nn.Module, process_set: hvd.ProcessSet) -> bool:
    """Return whether the ranks of a set have the same weights."""
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    all_weights = hvd.allgather(weights[None], process_set=process_set)
    return bool((all_weights == weights).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps",
        type=int,
        default=300,
        help="steps of the even ranks; the odd ranks make twice as many",
    )
    arguments = parser.parse_args()

    hvd.init(process_sets=[EVEN, ODD])
    torch.manual_seed(hvd.rank())  # each rank draws other samples

    if EVEN.included():
        process_set, name = EVEN, "even ranks, sine"
        model, loss = train(EVEN, torch.sin, arguments.steps)
    else:
        process_set, name = ODD, "odd ranks, absolute value"
        model, loss = train(ODD, torch.abs, 2 * arguments.steps)

    set_loss = hvd.allreduce(loss, name="loss", process_set=process_set).item()
    same = are_equal(model, process_set)
    if process_set.rank() == 0:
        print(f"{name}: loss {set_loss:.4f}, weights are {'equal' if same else 'different'}")

    # Without a process set, all ranks take part.
    mean_loss = hvd.allreduce(loss, name="loss of all").item()
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {mean_loss:.4f} on average")


if __name__ == "__main__":
    main()
