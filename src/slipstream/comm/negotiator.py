"""Agreement of all ranks on one order of tensors, which become ready in different orders.

    negotiator = Negotiator(comm.world())
    negotiator.submit(Tensor("weight", DType.FLOAT32, (512, 512)), token=3)
    outcome = negotiator.next(timeout=1.0)
    for agreed in outcome.ready if outcome else ():  # the same on all ranks
        start_allreduce_of(agreed.token)

core/include/slipstream/negotiation.h describes the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream import _core
from slipstream.comm.collectives import Group
from slipstream.errors import ConfigError

AgreedTensor = _core.AgreedTensor
FailedTensor = _core.FailedTensor
NegotiationStats = _core.NegotiationStats
Outcome = _core.Outcome
Tensor = _core.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiatorConfig:
    """Configuration of a negotiator: its round interval and its limits.

    Args:
        cycle_seconds: Shortest time in seconds from one round to the next, 0 or more; a longer time
            gives fewer rounds with more tensors each.
        hold_seconds: Longest time in seconds, 0 or more, for which a round waits for a rank that
            has submitted no tensor. The time counts from the moment at which other ranks begin the
            round. `hold_seconds` should be equal on all ranks.
        stall_after_seconds: Time in seconds after which a warning names a tensor that some ranks
            have submitted and others have not.
        most_tensors: Largest number of tensor descriptions that a negotiator keeps, 1 or more,
            equal on all ranks. Beyond this number, the negotiator forgets the tensors that have
            not been ready for the longest time. A tensor that a rank has submitted and that is not
            ready yet is never forgotten.
    """

    cycle_seconds: float = 0.0
    hold_seconds: float = 0.5
    stall_after_seconds: float = 60.0
    most_tensors: int = 65536

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("cycle_seconds", "hold_seconds", "stall_after_seconds"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; allowed: 0 and more")
        if not 1 <= self.most_tensors < 2**32:
            raise ConfigError(f"most_tensors is {self.most_tensors}; allowed: 1 to {2**32 - 1}")


class Negotiator:
    """This rank's part in the negotiations of a group; any thread may use it.

    All ranks of the group construct their negotiators with the same configuration. If a group has
    several negotiators, all ranks construct them in the same order.

    Args:
        group: Ranks that negotiate.
        config: Round interval and limits of the negotiation (default `NegotiatorConfig()`).
    """

    def __init__(self, group: Group, config: NegotiatorConfig | None = None) -> None:
        chosen = config or NegotiatorConfig()
        self._negotiator = _core.make_negotiator(
            group._group,  # pyright: ignore[reportPrivateUsage]
            cycle=chosen.cycle_seconds,
            hold=chosen.hold_seconds,
            stall_after=chosen.stall_after_seconds,
            most_tensors=chosen.most_tensors,
        )

    def submit(self, tensor: Tensor, token: int = 0) -> None:
        """Announce that a tensor is ready on this rank; does not block.

        Args:
            tensor: Description of the tensor. If ranks pass different descriptions under one name,
                the tensor fails on all ranks.
            token: Number that stands for the tensor in AgreedTensor and FailedTensor, from 0 to
                2^64 - 1.

        Raises:
            UsageError: an earlier tensor of the same name is not ready on all ranks yet, or this
                rank has called join().
            PeerError: the negotiator has failed, because another rank is gone.
            AbortedError: the negotiator has failed, because it was closed.
        """
        self._negotiator.submit(tensor, token)

    def submit_all(self, tensors: Sequence[Tensor], first_token: int = 0) -> None:
        """Submit tensors with consecutive tokens; faster than a call of submit() for each tensor.

        Args:
            tensors: Descriptions of the tensors, as for submit(). If one of them is refused with an
                error, all tensors before it have been submitted.
            first_token: Token of the first tensor (default 0).

        The errors are the same as those of submit().
        """
        self._negotiator.submit_all(tensors, first_token)

    def submit_fused(self, tensors: Sequence[Tensor], tokens: Sequence[int]) -> None:
        """Announce several tensors of this rank, which become ready in the same round or never.

        Args:
            tensors: Descriptions of the tensors, equal and in the same order on all ranks.
            tokens: Token of each tensor.

        The errors are the same as those of submit().
        """
        self._negotiator.submit_fused(tensors, tokens)

    def join(self) -> None:
        """Announce that this rank will submit no more tensors.

        Once its submitted tensors are ready on all ranks, the rank counts as ready for every tensor
        until all ranks have joined. Does not block.
        """
        self._negotiator.join()

    def next(self, timeout: float) -> Outcome | None:
        """Wait, without the GIL, for the next outcome on which the ranks agree.

        Args:
            timeout: Time limit in seconds, 0 or more.

        Returns:
            The outcome of a round in which tensors became ready or failed, or in which all ranks
            had joined; None if the time limit passes first.

        Raises:
            PeerError: another rank is gone; raised after all outcomes have been returned.
            AbortedError: the negotiator was closed; raised after all outcomes have been returned.
        """
        return self._negotiator.next(timeout)

    def stats(self) -> NegotiationStats:
        """Return counts of rounds, tensors, messages and stall warnings since the start."""
        return self._negotiator.stats()

    def close(self) -> None:
        """End the negotiation on all ranks, so that next() raises AbortedError.

        A second call does nothing.
        """
        self._negotiator.close()
