"""The page of a server in a real Chromium: what it shows, and models that are asked from it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
playwright = pytest.importorskip("playwright.sync_api")

import onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from PIL import Image  # noqa: E402

from slipstream import infer  # noqa: E402

pytestmark = [
    pytest.mark.launcher("chromium"),
    pytest.mark.multiprocess,
]

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
TOKEN = "a-token-of-the-test"
COLOURS = {"red": (200, 40, 20), "green": (30, 190, 60), "blue": (20, 50, 210)}

# The contrast of each text with what is behind it, as WCAG 2.2 says; the least is given back.
CONTRAST = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let least = [99, ""];
  for (const node of document.body.querySelectorAll("*")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    const field = ["SELECT", "TEXTAREA", "INPUT"].includes(node.tagName);
    if (!(own || field) || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const text = node instanceof SVGElement ? style.fill : style.color;
    const [high, low] = [light(text), light(behind(node))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < least[0]) least = [ratio, `${node.tagName} ${node.className} ${node.textContent}`];
  }
  return least;
}"""


@dataclass(frozen=True)
class Site:
    """A server that runs, and a folder with a picture of each colour."""

    address: str
    pictures: Path


def _compiled(path: Path, graph: onnx.GraphProto, **options: Any) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    infer.compile(
        model.SerializeToString(), path,
        infer.CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",), **options),
    )  # fmt: skip
    return path


def _colours(path: Path, folders: Path) -> Path:
    """Return a model that tells the main colour of a picture: 0 red, 1 green, 2 blue."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["means"]),
        helper.make_node("Flatten", ["means"], ["colours"]),
    ]
    given = value("image", TensorProto.FLOAT, [1, 3, 16, 16])
    graph = helper.make_graph(
        nodes, "colours", [given], [value("colours", TensorProto.FLOAT, [1, 3])]
    )
    return _compiled(path, graph, pixels=True, top=3, data=folders)


def _times(path: Path) -> Path:
    """Twice its input."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "times",
        [value("x", TensorProto.FLOAT, [2, 2, 3])],
        [value("y", TensorProto.FLOAT, [2, 2, 3])],
    )
    return _compiled(path, graph)


@pytest.fixture(name="packages", scope="module")
def packages_fixture(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("packages")
    for number, (name, colour) in enumerate(COLOURS.items()):
        (folder / "pictures" / f"{number} {name}").mkdir(parents=True)
        picture = folder / "pictures" / f"{number} {name}" / "one.png"
        Image.new("RGB", (16, 16), tuple(colour)).save(picture)
    colours = _colours(folder / "colours.slip", folder / "pictures")
    return [str(colours), str(_times(folder / "times.slip"))]


@pytest.fixture(name="pictures", scope="module")
def pictures_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(1)
    for name, colour in COLOURS.items():
        pixels = np.clip(np.array(colour) + random.normal(0, 20, (48, 64, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}.png")
    return folder


def _served(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("slipstream")), "serve", *arguments,
         "--port", "0", "--grpc-port", "-1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    while "model  times" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    address = f"http://{re.findall(r'127.0.0.1:[0-9]+', said)[0]}"
    return process, address


def _ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(20)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(name="site", scope="module")
def site_fixture(packages: list[str], pictures: Path) -> Iterator[Site]:
    process, address = _served(*packages)
    yield Site(address, pictures)
    _ended(process)


@pytest.fixture(name="chromium", scope="module")
def chromium_fixture() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(name="page")
def page_fixture(site: Site, chromium: Any) -> Iterator[Any]:
    """Yield the page, which has connected to its server and may report no error."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    errors = _errors(page)
    page.goto(site.address)
    page.wait_for_selector("html[data-seen]")
    yield page
    assert errors == []
    page.close()


def _errors(page: Any) -> list[str]:
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def _answer(page: Any, words: str) -> str:
    playwright.expect(page.locator("#answer")).to_contain_text(words)
    return str(page.locator("#answer").inner_text())


@pytest.mark.slow("page of a server")
def test_models_are_shown_with_what_was_measured(page: Any) -> None:
    cards = page.locator("#cards li")
    assert [each.inner_text() for each in cards.locator("h3").all()] == [
        "colours version 1", "times version 1",
    ]  # fmt: skip
    colours, times = (each.inner_text() for each in cards.all())
    assert "image UINT8 [-1, 16, 16, 3]" in re.sub(" +", " ", colours)
    assert "takes image files, too" in colours
    assert "y FP32 [-1, 2, 3]" in re.sub(" +", " ", times)
    assert re.search(r"(dB above their error|equal those)", times)
    assert "2 versions are ready." in page.locator("#connection").inner_text()


def test_a_picture_gets_its_label(page: Any, site: Site) -> None:
    page.get_by_label("Images, each a row").set_input_files(
        [site.pictures / "green.png", site.pictures / "blue.png"]
    )
    page.get_by_role("button", name="Ask").click()
    said = _answer(page, "answered in")
    assert re.search(
        r"colours, version 1, answered in [\d.]+ ms"
        r".*row 1: 1 green \(label 1\).*row 2: 2 blue \(label 2\)",
        said,
    )
    tables = page.locator("#outputs table")
    best = [each.locator("tbody th").first.inner_text() for each in tables.all()]
    assert best == ["1 green 1", "2 blue 2"]
    scores = [float(each) for each in tables.first.locator("td").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    page.wait_for_function("() => document.querySelectorAll('#previews img')[1].naturalWidth == 64")


def test_the_prefilled_request_is_valid_and_others_are_answered(page: Any) -> None:
    page.get_by_label("Model").select_option("times/1")
    body = page.get_by_label("Request, in JSON")
    asked = json.loads(body.input_value())
    (given,) = asked["inputs"]
    assert (given["shape"], given["data"]) == ([1, 2, 3], [0] * 6)
    page.get_by_role("button", name="Ask").click()
    _answer(page, "y has 6 numbers")
    given["data"] = [1, 2.5, 3, 4, 5, 6]
    body.fill(json.dumps(asked))
    page.get_by_role("button", name="Ask").click()
    playwright.expect(page.locator("#outputs pre")).to_contain_text("12")
    assert page.locator("#outputs pre").inner_text().split() == ["2", "5", "6", "8", "10", "12"]
    page.get_by_text("Response, in JSON").click()
    shown = json.loads(page.locator("#response").inner_text())
    assert shown["outputs"][0]["data"] == [2, 5, 6, 8, 10, 12]


def test_what_is_wrong_is_said(site: Site, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto(site.address)
    page.wait_for_selector("html[data-seen]")
    page.get_by_role("button", name="Ask").click()
    assert "choose an image first" in _answer(page, "Not answered")
    page.get_by_label("Model").select_option("times/1")
    for text, words in (
        ('{"inputs": [', "JSON"),
        ('{"inputs": []}', "input 'x' is missing; the model has x"),
    ):
        page.get_by_label("Request, in JSON").fill(text)
        page.get_by_role("button", name="Ask").click()
        assert "Not answered" in _answer(page, words)
    page.close()


def test_latency_and_load_are_live(page: Any, site: Site) -> None:
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2, 3], "data": [0] * 6}]}
    ).encode()
    for _ in range(20):
        with urllib.request.urlopen(f"{site.address}/v2/models/times/infer", body) as response:
            assert response.status == 200
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{site.address}/v2/models/times/infer", b"{}")
    caught.value.close()
    load, summary = page.locator("#load-1"), page.locator("#load-summary")
    playwright.expect(load).to_have_text(re.compile(r"median [\d.]+ ms.* [12] refused"))
    playwright.expect(summary).to_have_text(
        re.compile(r"at most \d+ in a second.*refused.*The median was")
    )
    for chart in ("rate-chart", "time-chart"):
        image = page.locator(f"#{chart} svg[role=img]")
        assert image.get_attribute("aria-label")
        assert image.get_attribute("aria-describedby") == "load-summary"
        assert image.locator("path").count() == 2


def test_what_was_written_stays_while_the_page_looks(page: Any) -> None:
    page.get_by_label("Model").select_option("times/1")
    body = page.get_by_label("Request, in JSON")
    body.fill("mine")
    body.focus()
    with page.expect_response("**/page/state"):
        pass
    with page.expect_response("**/page/state"):
        pass
    assert body.input_value() == "mine"
    assert page.evaluate("document.activeElement.id") == "body"


def test_a_version_that_is_not_ready_is_shown_and_not_offered(site: Site, chromium: Any) -> None:
    def answer(route: Any) -> None:
        state = route.fetch().json()
        state["models"][0] = {"name": "colours", "version": "1", "share": 0.25, "ready": False}
        route.fulfill(json=state)

    page = chromium.new_page()
    errors = _errors(page)
    page.route("**/page/state", answer)
    page.goto(site.address)
    page.wait_for_selector("html[data-seen]")
    card = page.locator("#cards li").first.inner_text()
    assert "version 1, 25 % of requests" in card
    assert "It is not ready yet." in card
    assert page.locator("#model option").all_inner_texts() == ["times, version 1"]
    assert page.get_by_label("Request, in JSON").is_visible()
    assert page.locator("#connection").inner_text() == "1 version is ready, 1 not ready."
    assert errors == []
    page.unroute_all()
    page.close()


def test_everything_is_done_by_keyboard(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "model"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "body"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "ask"
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"
    page.keyboard.press("Enter")
    _answer(page, "times, version 1, answered in")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Output y"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_screen_reader_has_names_and_is_told_answers(page: Any) -> None:
    tree = page.locator("body").aria_snapshot()
    for line in (
        'heading "Models of this server" [level=1]', 'region "What is served"',
        'region "Try one"', 'combobox "Model"', 'button "Ask"',
        'img "Requests a second, over five minutes"',
    ):  # fmt: skip
        assert line in tree
    assert page.locator("#answer").get_attribute("aria-live") == "polite"
    unnamed = page.evaluate(
        """[...document.querySelectorAll('input, select, textarea')]
            .filter((each) => !each.labels.length).map((each) => each.id)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_is_readable_and_asks_this_server_only(
    scheme: str, width: int, site: Site, chromium: Any, tmp_path: Path
) -> None:
    context = chromium.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce"
    )
    page = context.new_page()
    errors, asked = _errors(page), set[str]()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(site.address)
    page.wait_for_selector("html[data-seen]")
    page.get_by_label("Images, each a row").set_input_files(site.pictures / "red.png")
    page.get_by_role("button", name="Ask").click()
    _answer(page, "Best is 0 red (label 0)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    least, what = page.evaluate(CONTRAST)
    assert least >= 4.5, what
    picture = tmp_path / f"page-{scheme}-{width}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000
    page.get_by_label("Model").select_option("times/1")
    page.get_by_role("button", name="Ask").click()
    _answer(page, "times, version 1, answered")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert errors == []
    assert all(each.startswith((site.address, f"blob:{site.address}")) for each in asked)
    context.close()


@pytest.mark.slow("page of a server")
def test_a_token_is_asked_for_and_kept_nowhere(
    packages: list[str], chromium: Any, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    process, address = _served(*packages, "--token-file", str(tmp_path / "tokens"))
    try:
        with pytest.raises(urllib.error.HTTPError, match="401") as caught:
            urllib.request.urlopen(f"{address}/page/state")
        caught.value.close()
        context = chromium.new_context()
        page = context.new_page()
        page.goto(address)
        field = page.get_by_label("Token", exact=True)
        field.wait_for()
        assert not page.locator("#try").is_visible()
        assert page.evaluate("document.activeElement.id") == "token"
        page.keyboard.type("another")
        page.keyboard.press("Enter")
        page.get_by_text("The server does not know this token.").wait_for()
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("html[data-seen]")
        page.get_by_label("Model").select_option("times/1")
        page.get_by_role("button", name="Ask").click()
        _answer(page, "times, version 1, answered")
        kept = page.evaluate(
            "[{...localStorage}, {...sessionStorage}, document.cookie, location.href]"
        )
        assert TOKEN not in json.dumps(kept)
        assert TOKEN not in page.content()
        page.reload()
        field.wait_for()
        context.close()
    finally:
        _ended(process)


@pytest.mark.slow("page of a server")
def test_a_server_that_ends_is_noticed(packages: list[str], chromium: Any) -> None:
    process, address = _served(*packages)
    page = chromium.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-seen]")
    _ended(process)
    page.get_by_text("The server is not reached").wait_for()
    page.close()
