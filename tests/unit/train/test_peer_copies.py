"""Which ranks keep copies of a part, and which version of a commit is restored from whom."""

from collections import Counter

import pytest

from slipstream.train.elastic import ShardedState
from slipstream.train.elastic.peer_copies import ShardsLostError, choose, shifts


@pytest.mark.parametrize("copies", [0, 1, 2, 9])
@pytest.mark.parametrize("hosts", [["a"], ["a", "a", "b"], list("aabbccdd"), list("abcd" * 4)])
def test_all_ranks_keep_equally_many_parts(hosts: list[str], copies: int) -> None:
    size = len(hosts)
    kept = Counter((rank + shift) % size for rank in range(size) for shift in shifts(hosts, copies))
    assert set(kept.values()) <= {min(copies, size - 1)}
    assert all(1 <= shift < size for shift in shifts(hosts, copies))


@pytest.mark.parametrize("hosts", [list("aabb"), list("aabbccdd"), list("abab"), list("aaabbb")])
def test_the_first_copy_is_on_another_host(hosts: list[str]) -> None:
    (shift,) = shifts(hosts, 1)
    assert all(hosts[rank] != hosts[(rank + shift) % len(hosts)] for rank in range(len(hosts)))


def test_nothing_is_restored_if_nobody_has_the_commit() -> None:
    assert choose(4, [[], [[3, 1, 2, [0, 1]]]]) is None


def test_the_newest_whole_version_is_restored() -> None:
    old, new = [5, 1, 3, [0, 1, 2]], [5, 2, 2, [1]]
    source = choose(5, [[old, new], [[5, 1, 3, [1]]]])
    assert source is not None
    assert (source.version.commit, source.version.epoch) == (5, 1)  # rank 0 of epoch 2 is missing
    source = choose(5, [[old, new], [[5, 2, 2, [0, 1]]]])
    assert source is not None
    assert source.version.epoch == 2


def test_the_work_of_sending_is_divided() -> None:
    everything = [[1, 1, 4, [0, 1, 2, 3]]]
    source = choose(1, [everything, everything])
    assert source is not None
    assert Counter(source.providers) == {0: 2, 1: 2}


def test_lost_parts_are_named() -> None:
    with pytest.raises(ShardsLostError, match="rank 2 of the 4 ranks of epoch 7"):
        choose(9, [[[9, 7, 4, [0, 1]]], [[9, 7, 4, [1, 3]]]])


def test_wrong_use_is_refused() -> None:
    import torch

    from slipstream.errors import UsageError

    with pytest.raises(UsageError, match="copies is -1"):
        ShardedState(copies=-1)
    with pytest.raises(UsageError, match="model is a Linear; pass it to attach"):
        ShardedState(model=torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="attach\\(\\) got no objects"):
        ShardedState(step=0).attach()
