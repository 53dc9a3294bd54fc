"""The net plugin of NCCL: where it is, and what makes NCCL use it."""

import ctypes
import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

from slipstream.cluster.launch.nccl import LIBRARY, plugin_environment, plugin_library
from slipstream.errors import ConfigError


def test_the_plugin_has_a_table_for_each_version_and_is_named_as_nccl_expects() -> None:
    library = plugin_library()
    assert library.name == LIBRARY
    plugin = ctypes.CDLL(str(library))
    for version in (8, 9, 10, 11):
        table = (ctypes.c_char_p * 1).in_dll(plugin, f"ncclNetPlugin_v{version}")
        assert table[0] == b"Slipstream"


def test_nccl_is_led_to_the_plugin_and_may_use_nothing_else() -> None:
    folder = str(plugin_library().parent)
    assert plugin_environment({}) == {
        "NCCL_NET_PLUGIN": "slipstream",
        "NCCL_NET": "Slipstream",
        "LD_LIBRARY_PATH": folder,
    }
    more = plugin_environment({"LD_LIBRARY_PATH": "/cuda", "SLIPSTREAM_IFACE": "eth"})
    assert more["LD_LIBRARY_PATH"] == f"{folder}:/cuda"
    assert more["NCCL_SOCKET_IFNAME"] == "eth"
    both = {"SLIPSTREAM_IFACE": "eth", "NCCL_SOCKET_IFNAME": "ib"}
    assert "NCCL_SOCKET_IFNAME" not in plugin_environment(both)


def test_an_installation_without_the_plugin_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_core.so").touch()
    spec = importlib.machinery.ModuleSpec("slipstream._core", None, origin=f"{tmp_path}/_core.so")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(ConfigError, match=rf"{tmp_path}/{LIBRARY} is missing; install Slipstream"):
        plugin_environment({})
