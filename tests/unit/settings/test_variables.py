"""What the `SLIPSTREAM_*` variables may hold, and what is said when they do not."""

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.settings import InterfaceFilter, Launch, Settings
from slipstream.settings.page import settings_page
from slipstream.settings.variables import variables

KEY = "0123456789abcdef"


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_an_empty_value_counts_as_unset() -> None:
    assert Settings.from_environment({"SLIPSTREAM_STREAMS": ""}).streams == Settings().streams


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("SLIPSTREAM_PORT", "65535", "port", 65535),
        ("SLIPSTREAM_IFACE", "eth,ib", "iface", InterfaceFilter(names=("eth", "ib"))),
        ("SLIPSTREAM_HOST_ID", " a ", "host_id", "a"),
        ("SLIPSTREAM_JOB_KEY", f"{KEY}\n", "job_key", KEY.encode()),
        ("SLIPSTREAM_KEY_FILE", "/k", "key_file", Path("/k")),
        ("SLIPSTREAM_STREAMS", "64", "streams", 64),
        ("SLIPSTREAM_SEGMENT_BYTES", "262144", "segment_bytes", 262144),
        ("SLIPSTREAM_EAGER_BYTES", "0", "eager_bytes", 0),
        ("SLIPSTREAM_PEER_TIMEOUT", "0.5", "peer_timeout_seconds", 0.5),
        ("SLIPSTREAM_STALL_SECONDS", "1e3", "stall_seconds", 1000.0),
        ("SLIPSTREAM_TIMEOUT", "12", "timeout_seconds", 12.0),
        ("SLIPSTREAM_CONNECT_TIMEOUT", "12", "connect_timeout_seconds", 12.0),
        ("SLIPSTREAM_ALGORITHM", "recursive_doubling", "algorithm", "recursive_doubling"),
        ("SLIPSTREAM_CUDA_WAIT", "host", "cuda_wait", "host"),
        ("SLIPSTREAM_CUDA_HIERARCHY", "off", "cuda_hierarchy", "off"),
        ("SLIPSTREAM_TIMELINE", "t/{rank}.json", "timeline", Path("t/{rank}.json")),
        ("SLIPSTREAM_MEMBERS", "a:1, [::1]:2", "members", (("a", 1), ("::1", 2))),
        ("SLIPSTREAM_JOINS", "1", "joins", True),
    ],
)
def test_an_allowed_value_arrives(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(Settings.from_environment({name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SLIPSTREAM_PORT", "0"),
        ("SLIPSTREAM_PORT", "65536"),
        ("SLIPSTREAM_PORT", "http"),
        ("SLIPSTREAM_IFACE", "^"),
        ("SLIPSTREAM_IFACE", "eth0,^lo"),
        ("SLIPSTREAM_IFACE", " , "),
        ("SLIPSTREAM_HOST_ID", "  "),
        ("SLIPSTREAM_KEY_FILE", "  "),
        ("SLIPSTREAM_STREAMS", "2.5"),
        ("SLIPSTREAM_SEGMENT_BYTES", "262145"),
        ("SLIPSTREAM_PEER_TIMEOUT", "nan"),
        ("SLIPSTREAM_TIMEOUT", "inf"),
        ("SLIPSTREAM_ALGORITHM", "Ring"),
        ("SLIPSTREAM_MEMBERS", "a:1,b"),
        ("SLIPSTREAM_MEMBERS", "::1:2"),
        ("SLIPSTREAM_MEMBERS", "[a]:2"),
        ("SLIPSTREAM_MEMBERS", "a:70000"),
        ("SLIPSTREAM_MEMBERS", ":1"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.from_environment({name: text})
    message = str(raised.value)
    assert message.startswith(f"{name} is {text!r}; allowed: ")
    assert message.endswith(next(v.kind.allowed for v in variables().values() if v.name == name))


def test_a_key_never_shows_in_a_message_or_a_representation() -> None:
    with pytest.raises(ConfigError, match="a value of 5 characters") as raised:
        Settings.from_environment({"SLIPSTREAM_JOB_KEY": "s3cr3"[:5]})
    assert "s3cr3" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert KEY not in repr(Settings.from_environment({"SLIPSTREAM_JOB_KEY": KEY}))


def test_a_key_and_a_key_file_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="both set"):
        Settings.from_environment({"SLIPSTREAM_JOB_KEY": KEY, "SLIPSTREAM_KEY_FILE": "/k"})


def test_a_variable_that_does_not_exist_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Settings.from_environment({"SLIPSTREAM_STREMS": "4", "PATH": "/bin"})
    assert "SLIPSTREAM_STREMS has no effect" in caplog.text
    assert "SLIPSTREAM_STREAMS" in caplog.text


def test_the_key_comes_from_a_file_that_only_its_owner_may_use(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(f"{KEY}\n")
    assert Settings(key_file=path).load_job_key() == KEY.encode()
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode 640.*chmod 600"):
        Settings(key_file=path).load_job_key()


@pytest.mark.parametrize("content", [None, b"short", b"\xff" * 20])
def test_a_key_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.touch(mode=0o600)
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=str(path)):
        Settings(key_file=path).load_job_key()


@pytest.mark.parametrize(
    ("text", "allowed", "forbidden"),
    [
        ("eth,ib", ["eth0", "ib7"], ["lo", "xeth0"]),
        ("=eth0", ["eth0"], ["eth01", "lo"]),
        ("^docker,lo", ["eth0"], ["docker0", "lo"]),
        ("^=lo", ["lo0", "eth0"], ["lo"]),
    ],
)
def test_interfaces_are_filtered_as_nccl_does(
    text: str, allowed: list[str], forbidden: list[str]
) -> None:
    interfaces = Settings.from_environment({"SLIPSTREAM_IFACE": text}).iface
    assert interfaces is not None
    assert [name for name in allowed + forbidden if interfaces.allows(name)] == allowed


def test_the_port_is_the_one_after_the_frameworks_unless_chosen() -> None:
    launch = Launch(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=29500,
        source="single",
    )
    assert Settings().listen_port(launch) == 29501
    assert Settings(port=7).listen_port(launch) == 7


def test_every_field_is_documented_and_the_page_is_up_to_date(pytestconfig: pytest.Config) -> None:
    assert set(variables()) == {item.name for item in dataclasses.fields(Settings)}
    page = pytestconfig.rootpath / "docs" / "settings.md"
    assert page.read_text() == settings_page(), "python -m slipstream.settings > docs/settings.md"


def test_every_setting_is_read_by_somebody(pytestconfig: pytest.Config) -> None:
    sources = [path.read_text() for path in (pytestconfig.rootpath / "src").rglob("*.py")]
    plugin = (pytestconfig.rootpath / "plugin" / "options.cc").read_text()
    for attribute, variable in variables().items():
        read = rf"\.{attribute}\b|\"{attribute}\""
        is_read = any(re.search(read, text) for text in sources)
        assert is_read or f'"{variable.name}"' in plugin, attribute
