"""Devices, links and prices are read, checked and extended."""

import re
from pathlib import Path

import pytest

from slipstream.errors import ConfigError, UsageError
from slipstream.forecast.hardware import load

DEVICE = """
[[device]]
name = "{name}"
kind = "gpu"
memory_gib = {memory}
memory_gb_per_s = 100.0
processors = 4
cache_mib = 1.0
tflops = {{ float32 = 1.0 }}
device_link = "{link}"
host_link = "pcie4"
year = 2026
source = "measured"
"""


def _folder(path: Path, text: str) -> Path:
    (path / "own.toml").write_text(text)
    return path


def test_the_devices_of_published_measurements_are_known():
    hardware = load()
    for text in ("K80", "p100", "V100", "t4", "a10", "a100", "A100-40GB", "l4", "L40S", "h100"):
        assert hardware.device(text).tflops["float32"] > 1
    assert hardware.device("a100") is hardware.devices["A100-80GB"]
    assert hardware.device("b200").memory_gb_per_s > hardware.device("h200").memory_gb_per_s


def test_peaks_are_dense():
    # Data sheets print the rates with sparsity, which are twice as high, in large type.
    peaks = {"A100-80GB": 312, "H100": 989, "L4": 121, "L40S": 362, "B200": 2250}
    for name, tflops in peaks.items():
        assert load().device(name).tflops["bfloat16"] == pytest.approx(tflops, rel=0.02)


def test_every_name_that_is_used_is_there_and_every_row_has_a_source():
    hardware = load()
    for device in hardware.devices.values():
        assert hardware.link(device.device_link).kind in ("device", "host")
    rows = [*hardware.devices.values(), *hardware.links.values(), *hardware.flow_caps]
    assert all(row.source.startswith("http") for row in [*rows, *hardware.offers])
    assert len({offer.cloud for offer in hardware.offers}) >= 4


def test_no_two_devices_share_an_alias():
    names = [
        name
        for device in load().devices.values()
        for name in {device.name.lower(), *device.aliases}
    ]
    assert len(names) == len(set(names))


def test_a_users_file_adds_and_replaces(tmp_path: Path):
    text = DEVICE.format(name="mine", memory=3, link="pcie4")
    text += DEVICE.format(name="T4", memory=17, link="pcie4")
    hardware = load(_folder(tmp_path, text))
    assert hardware.device("MINE").memory_gib == 3
    assert hardware.device("T4").memory_gib == 17
    assert load().device("T4").memory_gib == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEVICE.format(name="x", memory=-1, link="pcie4"), "device.0.memory_gib is -1: .*greater"),
        (
            DEVICE.format(name="x", memory=1, link="nvlink7"),
            "device x: no link .*'nvlink7'; near: ",
        ),
        (DEVICE.format(name="x", memory=1, link="pcie4") + "colour = 1\n", "colour is 1"),
        ('[[device]]\nname = "x"\nkind = "gpu"\n', "own.toml: device.0.memory_gib is missing$"),
        ("[[devices]]\n", "devices is .*Extra"),
        ("device = [", "own.toml cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load(_folder(tmp_path, text))


def test_a_wrong_price_is_named(tmp_path: Path):
    offer = """
[[offer]]
cloud = "mine"
instance = "x"
region = "here"
device = "{device}"
count = 1
dollars_per_hour = 1
market = "spot"
date = "{date}"
source = "me"
"""
    with pytest.raises(ConfigError, match=r"offer mine x: no device is called 'T5'; near: .*T4"):
        load(_folder(tmp_path, offer.format(device="T5", date="2026-11")))
    with pytest.raises(ConfigError, match=r"offer.0.date is '2026-13'"):
        load(_folder(tmp_path, offer.format(device="T4", date="2026-13")))


def test_an_unknown_device_is_named_with_those_near():
    with pytest.raises(UsageError, match=r"no device is called 'a1000'; near: .*a100"):
        load().device("a1000")


def test_a_folder_without_tables_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"has no \.toml files"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("link", "devices", "per_host", "share"),
    [
        ("nvlink2", 2, 8, 1 / 6),
        ("nvlink2", 3, 8, 4 / 6),
        ("nvlink2", 8, 8, 1.0),
        ("nvlink2", 2, 16, 1.0),
        ("nvlink1", 4, 8, 3 / 4),
        ("nvlink3", 2, 8, 1.0),
    ],
)
def test_links_of_a_mesh_lead_to_others_too(
    link: str, devices: int, per_host: int, share: float
) -> None:
    found = load().link(link).share(devices, per_host)
    assert found == pytest.approx(share, abs=1e-3)


def test_names_that_are_not_near_any_are_answered_with_all():
    hardware = load()
    with pytest.raises(UsageError, match=re.escape(f"known: {', '.join(sorted(hardware.links))}")):
        hardware.link("%")
    with pytest.raises(
        UsageError, match=re.escape(f"known: {', '.join(sorted(hardware.devices))}")
    ):
        hardware.device("%")
    # At most three names are suggested.
    with pytest.raises(UsageError, match=r"near: [^,]+, [^,]+, [^,]+$"):
        hardware.device("v100-sxm")


@pytest.mark.parametrize(("share", "fits"), [(1.0, True), (1.01, False), (0.0, False)])
def test_no_link_has_more_than_its_rate(tmp_path: Path, share: float, fits: bool):
    text = f"""
[[link]]
name = "mesh"
kind = "device"
gbyte_per_s = 10.0
latency_us = 1.0
among = {{ 2 = {share} }}
source = "me"
"""
    place = _folder(tmp_path, text)
    if fits:
        assert load(place).link("mesh").share(2, 2) == share
        return
    with pytest.raises(ConfigError, match="among"):
        load(place)


@pytest.mark.parametrize(
    ("date", "fits"),
    [("2026", True), ("2026-11", True), ("2026-11-30", True), ("2026-11-31", False)],
)
def test_prices_are_of_a_year_a_month_or_a_day(tmp_path: Path, date: str, fits: bool):
    text = f'''
[[offer]]
cloud = "mine"
instance = "x"
region = "here"
device = "T4"
count = 1
dollars_per_hour = 1
market = "spot"
date = "{date}"
source = "me"
'''
    place = _folder(tmp_path, text)
    if fits:
        (found,) = (each for each in load(place).offers if each.cloud == "mine")
        assert (found.date, found.network_gbit_per_s) == (date, None)
        return
    with pytest.raises(ConfigError, match="date"):
        load(place)
