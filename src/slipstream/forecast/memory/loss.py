"""What the loss of a language model keeps, where it is not computed operator by operator."""

from __future__ import annotations

from dataclasses import replace

from slipstream.forecast.work.workload import TensorValue, Workload

_SOFTMAX, _BACK = "_log_softmax", "_log_softmax_backward_data"


def with_shared_loss(workload: Workload) -> Workload:
    """Returns a workload with what the gradient of a loss over shared classes needs besides: the
    shares of probabilities are a tensor of their own.

    Source: torch.distributed.tensor.parallel.loss_parallel.

    Args:
        workload: as one rank of a tensor dimension runs it.
    """
    values, operators = list(workload.values), list(workload.operators)
    for index, operator in enumerate(operators):
        if operator.name == "_log_softmax_backward_data":
            size = values[operator.writes[0]].num_bytes
            operators[index] = replace(operator, writes=(*operator.writes, len(values)))
            values.append(TensorValue(size, index, index + 1))
    return replace(workload, operators=tuple(operators), values=tuple(values))


def with_compiled_loss(workload: Workload) -> Workload:
    """Returns a workload whose loss is compiled: kernels read scores and write their gradient, and
    nothing in between is kept; scores stay until their gradient is made.

    Source: torch.compile; torchtitan compiles the loss with the model since 2025.

    Args:
        workload: of a model that ends in a cross-entropy.
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
        # The gradient is cast to the type of the scores, and is what the kernel writes.
    else:
        fused.remove(last)
    for index in fused:
        for value in operators[index].writes:
            values[value] = replace(values[value], num_bytes=0)
    values[scores] = replace(values[scores], dies=max(values[scores].dies, last + 1))
    return replace(workload, values=tuple(values))
