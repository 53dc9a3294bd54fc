"""What the launcher tells a process of an elastic job, and what the process reads."""

import socket
from queue import Queue

from slipstream.settings import (
    RANK_VARIABLES,
    ElasticPart,
    Launch,
    Settings,
    announce_epoch,
    detect_launcher,
    follow_joiners,
)

PART = ElasticPart(
    min_ranks=2,
    max_ranks=8,
    slot=1,
    member_port=20004,
    members=(("a", 20002), ("a", 20004), ("fd00::1", 20002)),
    joins=True,
    job_slot=5,
    host_name="a",
    whole_hosts=True,
    rank_hint=3,
)


def test_a_process_reads_what_the_launcher_has_set() -> None:
    environ = PART.as_environment()
    assert environ["SLIPSTREAM_MEMBERS"] == "a:20002,a:20004,[fd00::1]:20002"
    settings = Settings.from_environment(environ)
    assert (settings.min_ranks, settings.max_ranks, settings.slot) == (2, 8, 1)
    assert (settings.member_port, settings.members) == (20004, PART.members)
    assert settings.joins
    assert (settings.job_slot, settings.host_name, settings.whole_hosts) == (5, "a", True)
    assert (environ["HOROVOD_HOSTNAME"], environ["HOROVOD_RANK"]) == ("a", "3")


def test_a_process_and_its_launcher_exchange_news() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        descriptor = str(theirs.fileno())
        settings = Settings.from_environment({"SLIPSTREAM_MEMBER_FD": descriptor})
        news: Queue[frozenset[int]] = Queue()
        announce_epoch(settings, 12)
        follow_joiners(settings, news.put)
        assert ours.recv(100) == b"12\n"
        ours.send(b"3 4\n\n5")
        ours.send(b"6\n")
        expected = [frozenset({3, 4}), frozenset[int](), frozenset({56})]
        assert [news.get(timeout=10) for _ in range(3)] == expected
        ours.shutdown(socket.SHUT_WR)


def test_without_the_variables_of_ranks_no_launcher_is_found() -> None:
    launch = Launch(
        rank=1,
        local_rank=0,
        world_size=2,
        local_world_size=2,
        master_addr="a",
        master_port=2,
        source="environment",
    )
    environ = launch.as_environment() | {"OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "1"}
    assert detect_launcher(environ).rank == 1
    left = {name: text for name, text in environ.items() if name not in RANK_VARIABLES}
    assert left == {}
