"""Lightning trains, saves, resumes and evaluates as it does over gloo, bit for bit.

torchrun --nproc-per-node 2 lightning_trainer.py
"""

import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812  its documentation's name
import torch
import torch.distributed as dist
import torchmetrics
from backends import same_on_both
from lightning.fabric.strategies import DDPStrategy as FabricDDPStrategy
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

from slipstream.torch import compress

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Regression(L.LightningModule):
    """A small network with what needs other ranks: metrics, gathering, objects."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 32),
            torch.nn.GELU(),
            torch.nn.BatchNorm1d(32),
            torch.nn.Linear(32, 1),
        )
        self.error = torchmetrics.MeanSquaredError()
        self.seen = torchmetrics.CatMetric()

    def training_step(self, batch: tuple[torch.Tensor, ...], index: int) -> torch.Tensor:
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, ...], index: int) -> None:
        predicted = self.net(batch[0])
        self.error(predicted, batch[1])
        self.seen.update(batch[1][: self.global_rank + 1, 0])  # as many values as no other rank
        self.log("error", self.error)
        self.log("loss", (predicted - batch[1]).square().mean(), sync_dist=True)
        self.log("ranks", float(self.global_rank + 1), sync_dist=True, reduce_fx="sum")

    def on_validation_epoch_end(self) -> None:
        size = self.trainer.world_size
        assert self.all_gather(torch.tensor(self.global_rank)).tolist() == list(range(size))
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": self.global_rank})
        assert objects == [{"rank": rank} for rank in range(size)]
        assert self.trainer.strategy.broadcast({"rank": self.global_rank}, src=1) == {"rank": 1}
        self.log("seen", self.seen.compute().sum())
        self.seen.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Compressed(Regression):
    """Gradients that travel encoded between hosts: on one host, the result is the same."""

    def on_train_start(self) -> None:
        if dist.get_backend() == "slipstream":
            compress(self.trainer.strategy.model, "int8")


class Sharded(Regression):
    """FSDP2, for which Lightning has ModelParallelStrategy."""

    def configure_model(self) -> None:
        if not isinstance(self.net[0].weight, DTensor):
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


def fit(strategy: Any, kind: type[Regression] = Regression, **options: Any) -> list[Any]:
    """Return weights, metrics and the number of steps, after training a network of this kind."""
    L.seed_everything(0, verbose=False)
    model, rows = kind(), torch.randn(70, 8)
    data = TensorDataset(rows, rows.sum(1, keepdim=True))
    checkpoint = options.pop("ckpt_path", None)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, **{**QUIET, "max_epochs": 2, **options}
    )
    loaders = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=4)
    trainer.fit(model, *loaders, ckpt_path=checkpoint)
    assert trainer.world_size == dist.get_world_size() == 2
    weights = [whole(each).detach().clone() for each in model.parameters()]
    return [weights, dict(sorted(trainer.callback_metrics.items())), trainer.global_step]


def whole(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or all parts of it if it is sharded."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def resume(backend: str, folder: Path) -> list[Any]:
    """Return the results of `fit` after an interruption, continued from a checkpoint."""

    def part(**options: Any) -> list[Any]:
        keep = ModelCheckpoint(folder, save_last=True, monitor="loss")
        strategy = DDPStrategy(process_group_backend=backend)
        return fit(strategy, callbacks=[keep], enable_checkpointing=True, **options)

    part(max_epochs=1)
    return part(ckpt_path=folder / "last.ckpt")


def loop_over_fabric(backend: str) -> list[Any]:
    """Return weights and results of collectives in a user's loop with Lightning Fabric."""
    strategy = FabricDDPStrategy(process_group_backend=backend)
    fabric = L.Fabric(accelerator="cpu", devices=2, strategy=strategy, precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    layer = torch.nn.Linear(8, 8)
    model, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    for step in range(4):
        with fabric.no_backward_sync(model, enabled=step % 2 == 0):
            rows = torch.full((2, 8), float(fabric.global_rank + step))
            fabric.backward(model(rows).square().mean())
        if step % 2:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
    with fabric.rank_zero_first():  # Lightning makes a group of gloo for it, beside ours
        values = torch.tensor([1, 3]) + fabric.global_rank * 2
    mean = fabric.all_reduce(values, reduce_op="mean")
    assert mean.tolist() == [2, 4]
    return [model.weight.detach(), mean]


def run(backend: str) -> dict[str, Any]:
    """Return all results with one backend."""
    ddp = {"process_group_backend": backend}
    first = fit(DDPStrategy(**ddp))
    assert dist.get_backend() == backend
    with tempfile.TemporaryDirectory() as own:
        shared: list[Any] = [own]
        dist.broadcast_object_list(shared, src=0)
        folder = Path(shared[0])
        stop = EarlyStopping("loss", patience=1, min_delta=10.0)
        fsdp = {"data_parallel_size": 2, "tensor_parallel_size": 1, **ddp}
        results = {
            "plain": first,
            "compressed": fit(DDPStrategy(**ddp), Compressed),
            "bf16": fit(DDPStrategy(**ddp), precision="bf16-mixed"),
            "accumulated": fit(
                DDPStrategy(find_unused_parameters=True, **ddp),
                **{"accumulate_grad_batches": 3, "gradient_clip_val": 0.5},
            ),
            "stopped": fit(DDPStrategy(**ddp), callbacks=[stop], max_epochs=9),
            "resumed": resume(backend, folder),
            "sharded": fit(ModelParallelStrategy(**fsdp), Sharded),
            "fabric": loop_over_fabric(backend),
        }
        dist.barrier()
    dist.destroy_process_group()
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Lightning's advice, and its use of PyTorch's older names
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    same_on_both(run)
