"""The memory of a language model's loss if the loss is sharded or compiled."""

from __future__ import annotations

from dataclasses import replace

from slipstream.forecast.work.workload import TensorValue, Workload

_SOFTMAX, _BACK = "_log_softmax", "_log_softmax_backward_data"


def with_shared_loss(workload: Workload) -> Workload:
    """Return a workload with the extra tensor that a loss with sharded classes stores.

    The backward pass of the loss stores the rank's shard of the class probabilities in a separate
    tensor.

    Source: torch.distributed.tensor.parallel.loss_parallel.

    Args:
        workload: Workload of one tensor-parallel rank.
    """
    values, operators = list(workload.values), list(workload.operators)
    for index, operator in enumerate(operators):
        if operator.name == "_log_softmax_backward_data":
            size = values[operator.writes[0]].num_bytes
            operators[index] = replace(operator, writes=(*operator.writes, len(values)))
            values.append(TensorValue(size, index, index + 1))
    return replace(workload, operators=tuple(operators), values=tuple(values))


def with_compiled_loss(workload: Workload) -> Workload:
    """Return a workload whose loss is compiled.

    The compiled kernels read the scores (logits) and write their gradient without storing
    intermediate values. The scores stay in memory until their gradient is computed.

    Source: torch.compile; torchtitan compiles the loss with the model since 2025.

    Args:
        workload: Workload of a model that ends in a cross-entropy.
    """
    values, operators = list(workload.values), workload.operators
    places = {operator.name: index for index, operator in enumerate(operators)}
    if not {_SOFTMAX, _BACK} <= places.keys():
        return workload
    first, last = places[_SOFTMAX], places[_BACK]
    scores = operators[first].reads[0]
    fused = set(range(first, last + 1))
    if operators[first - 1].writes == (scores,) and operators[first - 1].name == "_to_copy":
        fused.add(first - 1)
        scores = operators[first - 1].reads[0]
        # The kernel writes the gradient in the data type of the scores, without a separate cast.
    else:
        fused.remove(last)
    for index in fused:
        for value in operators[index].writes:
            values[value] = replace(values[value], num_bytes=0)
    values[scores] = replace(values[scores], dies=max(values[scores].dies, last + 1))
    return replace(workload, values=tuple(values))
