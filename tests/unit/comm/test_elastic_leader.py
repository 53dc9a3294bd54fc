"""A member that leads while another one, before it, may lead as well."""

import pytest

from slipstream.cluster.ports import find_free_port_pair
from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import Patience, Standing, UnreachableError
from slipstream.comm.elastic.leader import Leader
from slipstream.comm.elastic.listener import MemberListener


def member(number: int, port: int) -> JobMember:
    return JobMember(uid=f"member {number}", host="here", address=f"127.0.0.1:{port}")


def test_a_leader_does_not_wait_for_ever_for_one_that_leads_too() -> None:
    """Rank 0 is dead, and ranks 1 and 2 live; rank 2 leads, and rank 1 does not come to it."""
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    ports = (find_free_port_pair(), find_free_port_pair(), listener.port)
    members = tuple(member(number, port) for number, port in enumerate(ports))
    standing = Standing(
        me=members[2],
        epoch=Epoch(number=1, nonce="", members=members),
        lost=lambda: {members[0].uid},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=3,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(5.0),
    )
    try:
        with pytest.raises(UnreachableError, match="another member may lead"):
            Leader(standing, listener, key).form()
    finally:
        listener.close()
