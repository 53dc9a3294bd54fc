"""The pages of the forecast in a real Chromium, as a user makes and reads them."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import in_process

pytest.importorskip("torch")
pytest.importorskip("vl_convert")
playwright = pytest.importorskip("playwright.sync_api")

pytestmark = [pytest.mark.launcher("chromium"), pytest.mark.slow("forecast report")]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "forecast" / "measurements.csv"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
CHARTS = {
    "plans": ["scaling-chart", "cost-chart", "schedule-chart", "parts-chart", "memory-chart"],
    "errors": ["seconds-chart", "efficiency-chart"],
}


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both pages."""
    folder = tmp_path_factory.mktemp("pages")
    with TABLE.open(newline="") as source, (folder / "thin.csv").open("w", newline="") as target:
        rows = csv.reader(source)
        out = csv.writer(target)
        out.writerow(next(rows))
        out.writerows(row for row in rows if row[1] in ("VGG16", "GreenNet CNN"))
    _made(
        "resnet18", "--batch", "128", "--gpus", "A100,T4", "--max-devices", "16",
        "--precision", "bf16", "--html", str(folder / "out" / "plans.html"),
    )  # fmt: skip
    _made("validate", str(folder / "thin.csv"), "--html", str(folder / "out" / "errors.html"))
    return folder / "out"


def _made(*arguments: str) -> None:
    done = in_process("forecast", *arguments)
    assert done.code == 0, done.stderr


@pytest.fixture(name="chromium", scope="module")
def chromium_fixture() -> Iterator[Any]:
    """Yield a browser that reaches no network."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", CHARTS)
def test_a_page_draws_its_charts_offline(
    name: str, scheme: str, width: int, folder: Path, chromium: Any
) -> None:
    context = chromium.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True
    )
    page = context.new_page()
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / f"{name}.html").as_uri())
    page.wait_for_selector(f"html[data-drawn={scheme}]")
    assert errors == []
    assert asked == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for chart in CHARTS[name]:
        assert page.locator(f"#{chart} svg path").count() > 5, chart
        assert page.locator(f"#{chart}").get_attribute("aria-label")
    picture = folder / f"{name}-{scheme}-{width}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000
    context.close()


def test_plans_have_their_intervals_and_say_whether_the_model_fits(
    folder: Path, chromium: Any
) -> None:
    page = chromium.new_page()
    page.goto((folder / "plans.html").as_uri())
    plans = page.locator("#plans table")
    row = plans.locator("tbody tr").last.inner_text()
    assert re.search(r"\d GiB\s+[\d.]+-[\d.]+ of \d+", row)
    assert re.search(r"\d%\s+\d+-\d+%", row)
    assert "it fits" in page.locator("#fit table").inner_text()
    page.close()


def test_the_keyboard_reaches_everything(folder: Path, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto((folder / "plans.html").as_uri())
    page.wait_for_selector("html[data-drawn]")
    met: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        what = page.evaluate(
            "[document.activeElement.tagName, document.activeElement.className].join(' ').trim()"
        )
        if met and what == "BODY":
            break
        met.append(what)
    assert met[0] == "A skip"
    assert {"A", "SELECT", "DIV scroll", "SUMMARY"} <= set(met)
    assert met.count("DIV scroll") >= len(CHARTS["plans"])
    page.close()


def test_another_schedule_can_be_chosen(folder: Path, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto((folder / "plans.html").as_uri())
    page.wait_for_selector("html[data-drawn]")
    select = page.get_by_role("combobox", name="Plan")
    bars = page.locator("#schedule-chart svg [aria-roledescription='bar']")
    before = [each.get_attribute("aria-label") for each in bars.all()]
    select.select_option(index=1)
    page.wait_for_function(
        """before => document.querySelector("#schedule-chart svg [aria-roledescription='bar']")
            .getAttribute("aria-label") !== before""",
        arg=before[0],
    )
    select.focus()
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.close()
