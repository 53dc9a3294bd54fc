"""What the engine is told of the settings."""

import socket
from pathlib import Path
from typing import Any

import pytest

from slipstream import _core
from slipstream.comm import config as config_module
from slipstream.comm.config import choose_listen_addresses, engine_config, interface_filter_text
from slipstream.settings import Settings


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the arguments of the engine's next configuration, which itself shows nothing."""
    seen: dict[str, Any] = {}
    real = _core.Config

    def record(**given: Any) -> _core.Config:
        seen.update(given)
        return real(**given)

    monkeypatch.setattr(config_module._core, "Config", record)
    return seen


def test_without_settings_the_engine_listens_on_loopback_with_our_defaults(
    told: dict[str, Any],
) -> None:
    engine_config(Settings(), None)
    assert told == {
        "bind": ["127.0.0.1"],
        "host_name": socket.gethostname(),
        "host_id": "",
        "rack": "",
        "dimensions": [],
        "streams": 0,
        "first_streams": 0,
        "tls": False,
        "congestion": "",
        "dscp": 0,
        "pacing_bytes": 0,
        "segment_bytes": 131072,
        "eager_bytes": 8192,
        "connect_timeout": 120.0,
        "peer_timeout": 5.0,
        "stall_after": 60.0,
        "timeout": 1800.0,
        "algorithm": "auto",
    }


def test_every_setting_of_the_engine_reaches_it(told: dict[str, Any], tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"streams": 3}')
    variables = {
        "HOST_ID": "h",
        "RACK": "r",
        "STREAMS": "2",
        "TLS": "1",
        "DSCP": "10",
        "PACING_MBIT": "8",
        "STALL_SECONDS": "9",
        "SEGMENT_BYTES": "65536",
        "EAGER_BYTES": "4096",
        "CONNECT_TIMEOUT": "7",
        "PEER_TIMEOUT": "6",
        "TIMEOUT": "90",
        "ALGORITHM": "ring",
        "PROFILE": str(profile),
    }
    settings = Settings.from_environment({f"SLIPSTREAM_{k}": v for k, v in variables.items()})
    engine_config(settings, "127.0.0.1")
    assert told["pacing_bytes"] == 1_000_000  # 8 Mbit
    assert told["bind"]
    names = ("host_id", "rack", "streams", "first_streams", "tls", "dscp")
    assert [told[name] for name in names] == ["h", "r", 2, 3, True, 10]
    seen = [told[name] for name in ("connect_timeout", "peer_timeout", "stall_after", "timeout")]
    assert seen == [7.0, 6.0, 9.0, 90.0]
    seen = [told[name] for name in ("segment_bytes", "eager_bytes", "algorithm")]
    assert seen == [65536, 4096, "ring"]


def test_no_filter_allows_all_interfaces_and_a_filter_only_its_own() -> None:
    assert interface_filter_text(None) == ""
    only_loopback = Settings.from_environment({"SLIPSTREAM_IFACE": "=lo"})
    addresses = choose_listen_addresses(only_loopback, "")
    assert addresses[0].address == "127.0.0.1"
