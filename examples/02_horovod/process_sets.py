"""Two models train at the same time, one on the even ranks and one on the odd ones.

    slipstream run -n 4 examples/02_horovod/process_sets.py

Each half is a process set of Horovod's API. The halves do not wait for each other: the odd ranks
make twice as many steps. Of Slipstream the script knows one import line.
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
    # Ranks are counted in the job, also where a set is passed.
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
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    of_all = hvd.allgather(weights[None], process_set=process_set)
    return bool((of_all == weights).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of the even ranks")
    arguments = parser.parse_args()

    hvd.init(process_sets=[EVEN, ODD])
    torch.manual_seed(hvd.rank())  # samples of its own on each rank

    if EVEN.included():
        own, name = EVEN, "even ranks, sine"
        model, loss = train(EVEN, torch.sin, arguments.steps)
    else:
        own, name = ODD, "odd ranks, absolute value"
        model, loss = train(ODD, torch.abs, 2 * arguments.steps)

    of_set = hvd.allreduce(loss, name="loss", process_set=own).item()
    same = are_equal(model, own)
    if own.rank() == 0:
        print(f"{name}: loss {of_set:.4f}, weights are {'equal' if same else 'different'}")

    # Without a process set it is all ranks.
    of_all = hvd.allreduce(loss, name="loss of all").item()
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {of_all:.4f} on average")


if __name__ == "__main__":
    main()
