"""The cost of a run: estimated before anything is created, and bounded by the deadline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.providers.protocol import MachineOffer


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The estimate of what the machines of a run cost.

    Args:
        offer: Type of the machines.
        num_machines: Number of machines.
        is_spot: Whether the provider may take them away.
        hours: Longest time in hours, up to the deadline.
    """

    offer: MachineOffer
    num_machines: int
    is_spot: bool
    hours: float

    @property
    def price_per_hour(self) -> float | None:
        """Price of all machines in US dollars for one hour, or None if it is not known."""
        price = self.offer.spot_price if self.is_spot else self.offer.price
        return None if price is None else price * self.num_machines

    @property
    def most(self) -> float | None:
        """Cost in US dollars up to the deadline, or None if the price is not known."""
        price = self.price_per_hour
        return None if price is None else price * self.hours


def capped(estimate: Estimate, cost_cap: float | None) -> Estimate:
    """Return an estimate whose time is so short that the cost stays below a cap.

    Args:
        estimate: Estimate up to the deadline of the job.
        cost_cap: Largest cost in US dollars, or None for no cap.

    Raises:
        UsageError: there is a cap, and the price is not known.
    """
    if cost_cap is None:
        return estimate
    price = estimate.price_per_hour
    if price is None:
        raise UsageError(
            f"cost_cap is {cost_cap:g}, but the price of {estimate.offer.instance_type} is not"
            " known; leave cost_cap out, or choose another type of machine"
        )
    return replace(estimate, hours=min(estimate.hours, cost_cap / price)) if price else estimate
