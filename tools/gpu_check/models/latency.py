"""The latency of models on the GPU beside PyTorch's, and calls of several threads that overlap.

Slipstream with its extra "infer" must be importable by this Python. Every step is printed when it
begins, so that the time of each compilation is in the results.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from slipstream.bench.infer.card import CardSpec, measure_on_card
from slipstream.bench.infer.card_contenders import CardModel, load_ours, ours
from slipstream.infer.engines.gpu.cards import OVERLAPPED_RUNS

from ..bench import Row, rounded

PEERS = ("eager", "compile", "compile-graphs")
PRECISION = "fp16"
ROUNDS, TURN_SECONDS = 10, 0.1
OVERLAPPED_CALLS = 300


def measure(arguments: list[str]) -> Iterator[Row]:
    """Yield the timings of a model with one row, and the rates of calls that overlap.

    Args:
        arguments: Name of a model in the zoo of `slipstream.bench`.
    """
    (name,) = arguments
    begin = time.monotonic()

    def tell(text: str) -> None:
        print(json.dumps({"after": round(time.monotonic() - begin, 1), "step": text}), flush=True)

    spec = CardSpec(
        models=(name,),
        peers=PEERS,
        batches=(1,),
        precision=PRECISION,
        rounds=ROUNDS,
        seconds=TURN_SECONDS,
    )
    (result,) = measure_on_card(spec, tell).results
    for timing in result.timings:
        yield {
            "contender": timing.contender,
            "milliseconds": rounded(timing.median * 1e3),
            "snr_db": rounded(timing.snr_db),
            "load_seconds": rounded(timing.load_seconds),
            "peak_bytes": timing.peak_bytes,
        }
    yield {"times_as_fast_as": {peer: result.speed_up(peer) for peer in PEERS}}
    yield from ({"note": note} for note in result.notes)
    tell("calls overlap")
    yield from overlapped(CardModel.of(name, 1, spec.device, PRECISION))


def overlapped(model: CardModel) -> Iterator[Row]:
    """Yield the rate of calls with one and with several threads; results must stay the same."""
    for name in ours(model.device, model.precision):
        run = load_ours(name, model)
        inputs = [varied(model.inputs, number) for number in range(8)]
        right = [run(item) for item in inputs]
        for threads in (1, OVERLAPPED_RUNS):
            numbers = [number % len(inputs) for number in range(OVERLAPPED_CALLS)]
            with ThreadPoolExecutor(threads) as callers:
                begin = time.perf_counter()
                found = list(callers.map(run, [inputs[number] for number in numbers]))
                seconds = time.perf_counter() - begin
            differ = sum(
                not all(np.array_equal(outputs[key], right[number][key]) for key in outputs)
                for number, outputs in zip(numbers, found, strict=True)
            )
            rate = rounded(OVERLAPPED_CALLS / seconds)
            yield {"contender": name, "threads": threads, "calls_per_second": rate} | {
                "wrong_results": differ,
                "differ_among_inputs": statistics.pstdev(
                    float(next(iter(outputs.values())).ravel()[0]) for outputs in right
                )
                > 0,
            }


def varied(inputs: Any, number: int) -> dict[str, Any]:
    """Return the inputs with other numbers: the elements are rotated."""
    return {name: np.roll(array, number * 7) for name, array in inputs.items()}
