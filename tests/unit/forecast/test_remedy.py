"""Changes that make a strategy fit are found in the order of their cost."""

from slipstream.forecast.memory import PeakMemory, fits
from slipstream.forecast.work.strategy import Strategy


def _needs(strategy: Strategy) -> PeakMemory:
    """Return the peak of states (80), parameters and gradients (40 each) and activations."""
    parts = {
        "states": 80 // (strategy.data if strategy.zero >= 1 else 1),
        "gradients": 40 // (strategy.data if strategy.zero >= 2 else 1),
        "parameters": 40 // (strategy.data if strategy.zero >= 3 else 1),
        "activations": strategy.micro_batch * (2 if strategy.checkpoint else 10) // strategy.tensor,
    }
    total = sum(parts.values())
    return PeakMemory(**parts, reserved=total, allocated=total, workspace=0, communication=0, at="")


def _words(strategy: Strategy, device_bytes: int) -> list[str]:
    return [each.words for each in fits(strategy, _needs, device_bytes=device_bytes)]


def test_what_fits_needs_no_change():
    strategy = Strategy(data=4, micro_batch=4)
    (change,) = fits(strategy, _needs, device_bytes=200)
    assert (change.words, change.strategy, change.peak.reserved) == ("", strategy, 200)


def test_changes_come_in_the_order_of_their_cost():
    assert _words(Strategy(data=4, micro_batch=16), 200)[:3] == [
        "micro-batches of 4",
        "ZeRO 1, micro-batches of 8",
        "ZeRO 2, micro-batches of 8",
    ]
    assert _words(Strategy(data=4, micro_batch=16), 100) == [
        "ZeRO 2, micro-batches of 2",
        "ZeRO 2, checkpoints, micro-batches of 8",
        "ZeRO 3, checkpoints",
        "2 tensor ranks, ZeRO 3, checkpoints",
    ]


def test_changes_keep_the_batch_and_the_ranks():
    strategy = Strategy(data=4, micro_batch=16, micro_batches=2)
    for change in fits(strategy, _needs, device_bytes=120):
        assert change.strategy.global_batch == strategy.global_batch
        assert change.strategy.ranks == strategy.ranks
        assert change.peak == _needs(change.strategy)
        assert change.peak.reserved <= 120


def test_one_device_has_nobody_to_share_with():
    assert _words(Strategy(micro_batch=16), 200) == [
        "micro-batches of 4",
        "checkpoints",
    ]
    assert _words(Strategy(micro_batch=1), 100) == []


def test_what_is_known_not_to_fit_is_not_replayed():
    asked: list[Strategy] = []

    def needs(strategy: Strategy) -> PeakMemory | None:
        asked.append(strategy)
        return None if strategy.zero < 2 else _needs(strategy)

    found = fits(Strategy(data=4, micro_batch=16), needs, device_bytes=200)
    assert [each.words for each in found][:1] == ["ZeRO 2, micro-batches of 8"]
    assert len(asked) == len(set(asked))
