"""The Trainer of transformers trains, saves, resumes and evaluates as over gloo, bit for bit.

torchrun --nproc-per-node 2 transformers_trainer.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from accelerate import PartialState
from backends import same_on_both
from transformers import (
    EarlyStoppingCallback,
    EvalPrediction,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from slipstream.torch import compress

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2}


class Compress(TrainerCallback):
    """Gradients that travel encoded between hosts: on one host, the result is the same."""

    trainer: Trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        compress(self.trainer.model_wrapped, "int8")


def metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Return the gathered rows, and the number of predicted tokens."""
    hits = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"rows": len(prediction.label_ids), "accuracy": float(np.mean(hits))}


def train(folder: Path, *, resume: bool = False, callback: Any = None, **options: Any) -> list[Any]:
    """Return weights, the loss and the results of evaluation after training."""
    torch.manual_seed(0)
    tokens = torch.randint(0, SIZES["vocab_size"], (61, 16))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    every = {"eval_strategy": "epoch", "save_strategy": "epoch", "disable_tqdm": True}
    chosen = {"per_device_train_batch_size": 4, "num_train_epochs": 2, **every, **options}
    arguments = TrainingArguments(str(folder), use_cpu=True, report_to="none", **chosen)
    assert arguments.world_size == dist.get_world_size() == 2
    trainer = Trainer(
        LlamaForCausalLM(LlamaConfig(**SIZES, **LAYERS)),
        arguments,
        train_dataset=rows[:40],
        eval_dataset=rows[40:],
        compute_metrics=metrics,
        callbacks=[] if callback is None else [callback],
    )
    if isinstance(callback, Compress):
        callback.trainer = trainer
    ended = trainer.train(resume_from_checkpoint=resume)
    said = {
        name: value
        for name, value in trainer.evaluate().items()
        if name in ("eval_loss", "eval_rows", "eval_accuracy")
    }
    assert said["eval_rows"] == 21
    weights = [each.detach().clone() for each in trainer.model.parameters()]
    return [weights, ended.global_step, ended.training_loss, said]


def resume(folder: Path) -> list[Any]:
    """Return the results of `train` after an interruption, continued from a checkpoint."""
    train(folder, max_steps=5)
    return train(folder, max_steps=10, resume=True)


def run(backend: str) -> dict[str, Any]:
    """Return all results with one backend."""
    dist.init_process_group(backend)
    with tempfile.TemporaryDirectory() as own:
        shared: list[Any] = [own]
        dist.broadcast_object_list(shared, src=0)
        folder = Path(shared[0])
        best = {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
        stop = EarlyStoppingCallback(1, early_stopping_threshold=10.0)
        results = {
            "plain": train(folder / "plain"),
            "bf16": train(folder / "bf16", bf16=True),
            "accumulated": train(folder / "accumulated", gradient_accumulation_steps=3),
            "stopped": train(folder / "stopped", callback=stop, num_train_epochs=9, **best),
            "resumed": resume(folder / "resumed"),
            "recomputed": train(folder / "recomputed", gradient_checkpointing=True),
        }
        assert results["stopped"][1] == 10  # the second epoch was no better by 10
        if backend == "slipstream":
            compressed = train(folder / "compressed", callback=Compress())
            torch.testing.assert_close(compressed, results["plain"], rtol=0, atol=0)
        dist.barrier()
    PartialState().destroy_process_group()
    assert not dist.is_initialized()
    return results


if __name__ == "__main__":
    same_on_both(run)
