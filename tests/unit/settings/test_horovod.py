"""Horovod's variables: what they become, what has no meaning, what is refused."""

import pytest

from slipstream.errors import ConfigError
from slipstream.settings import HorovodSettings


def test_nothing_set_means_the_defaults() -> None:
    settings = HorovodSettings.from_environment({"PATH": "/bin", "HOROVOD_CYCLE_TIME": ""})
    assert settings == HorovodSettings()
    assert settings.stall_after_seconds == 60


def test_variables_are_read() -> None:
    settings = HorovodSettings.from_environment(
        {
            "HOROVOD_FUSION_THRESHOLD": "1048576",
            "HOROVOD_CYCLE_TIME": "2.5",
            "HOROVOD_CACHE_CAPACITY": "100",
            "HOROVOD_DISABLE_GROUP_FUSION": "1",
            "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
            "HOROVOD_TIMELINE": "/tmp/t.json",
            "HOROVOD_TIMELINE_MARK_CYCLES": "1",
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        }
    )
    assert settings == HorovodSettings(
        fusion_bytes=1 << 20,
        cycle_milliseconds=2.5,
        known_tensors=100,
        separates_groups=True,
        dynamic_process_sets=True,
        timeline="/tmp/t.json",
        marks_cycles=True,
        stall_seconds=5,
    )


def test_stalls_end_nothing_before_they_are_reported() -> None:
    def limit(**given: str) -> float:
        return HorovodSettings.from_environment(
            {f"HOROVOD_STALL_{name}": value for name, value in given.items()}
        ).shutdown_after_seconds

    assert limit(SHUTDOWN_TIME_SECONDS="90") == 90
    assert limit(SHUTDOWN_TIME_SECONDS="30") == 0  # reported after 60
    assert limit(SHUTDOWN_TIME_SECONDS="30", CHECK_TIME_SECONDS="20") == 30
    assert limit(SHUTDOWN_TIME_SECONDS="90", CHECK_DISABLE="1") == 0
    assert limit() == 0


def test_the_engine_hears_of_interfaces_and_patience() -> None:
    given = {"HOROVOD_GLOO_IFACE": "eth0", "HOROVOD_GLOO_TIMEOUT_SECONDS": "7"}
    settings = HorovodSettings.from_environment(given).of_engine(given)
    assert settings.iface is not None
    assert settings.iface.names == ("eth0",)
    assert not settings.iface.allows("eth01")
    assert settings.connect_timeout_seconds == 7
    own = {**given, "SLIPSTREAM_IFACE": "ib", "SLIPSTREAM_CONNECT_TIMEOUT": "9"}
    settings = HorovodSettings.from_environment(own).of_engine(own)
    assert settings.iface is not None
    assert settings.iface.names == ("ib",)
    assert settings.connect_timeout_seconds == 9


def test_stalls_may_go_unreported() -> None:
    for name in ("HOROVOD_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_TIME_SECONDS"):
        value = "1" if name.endswith("DISABLE") else "0"
        assert HorovodSettings.from_environment({name: value}).stall_after_seconds > 1e8


def test_variables_without_a_meaning_are_named_and_those_of_the_launcher_are_not() -> None:
    environ = {"HOROVOD_RANK": "0", "HOROVOD_NUM_NCCL_STREAMS": "2", "HOROVOD_AUTOTUNE": "1"}
    ignored = HorovodSettings.from_environment(environ).ignored
    assert ignored == ("HOROVOD_AUTOTUNE", "HOROVOD_NUM_NCCL_STREAMS")


def test_a_wrong_value_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="HOROVOD_FUSION_THRESHOLD is 'much'; allowed"):
        HorovodSettings.from_environment({"HOROVOD_FUSION_THRESHOLD": "much"})
