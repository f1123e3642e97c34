import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout, manifest
from foretell.report.example import run_example
from foretell.report.page import render
from foretell.service.settings import Settings
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused
from tests.support.reported import SPEC, full_bundle


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(full_bundle(tmp_path_factory.mktemp("models")))


class Reader(HTMLParser):
    """Rows of tables, headings and what every element has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.titles: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._open in ("td", "th"):
            self.rows[-1][-1] += data.strip()
        if self._open == "h2" and data.strip():
            self.titles.append(data)


def test_page_has_every_part(page: str) -> None:
    read = Reader(page)
    assert read.titles == [
        *("The model", "Accuracy", "Intervals", "An example", "Attention weights"),
        *("Verification", "How it was made"),
    ]
    for row in (
        ["weather", "0.2500", "0.3750"],
        ["repeating the last value", "0.5000", "0.6250"],
        ["load", "0.4000", "1.2000", "2.0000"],
        ["1", "0.1500", "0.9500", "1.7500"],
        ["0.1", "16.2%"],
        ["0.5", "50.0%"],
        ["0.9", "83.0%"],
        ["1 to 4", "99", "9", "20", "80%", "75.0%", "1.500"],
    ):
        assert row in read.rows
    stages = {row[0]: row[2] for row in read.rows if len(row) == 3 and "." in row[0]}
    assert stages.keys() == {"encoder.0.self", "encoder.1.self", "mixing.0"}
    assert stages["encoder.1.self"] == "lag 0 100.0%, lag 1 (1 hour) 0.0%"
    assert "the model is better than repeating the last value" in page


def test_page_is_one_file_without_scripts(page: str) -> None:
    read = Reader(page)
    policies = [tag["content"] for name, tag in read.tags if name == "meta" and "http-equiv" in tag]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "link", "iframe", "object", "foreignobject"}
    for _, attributes in read.tags:
        for name in ("href", "src", "xlink:href"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:image/png;base64,"))
        assert not any(name.startswith("on") for name in attributes)
    hosts = set(re.findall(r"https?://[^\"' <)]+", page))
    assert hosts <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_pictures_have_names_and_identifiers_of_their_own(page: str) -> None:
    read = Reader(page)
    pictures = [attributes for tag, attributes in read.tags if tag == "svg"]
    assert [one["role"] for one in pictures] == ["img"] * 4
    assert all(one["aria-label"] for one in pictures)
    known = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(known) == len(set(known))
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', page))
    assert used <= set(known)


def test_charts_use_the_colours_of_the_page(page: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not {"#d1495b", "#5b6470", "#1d2733", "#000000"} & set(re.findall("#[0-9a-f]{6}", drawn))
    assert "var(--accent)" in drawn
    assert "<style" not in drawn


def test_example_is_forecast_as_a_server_does(tmp_path: Path) -> None:
    folder = full_bundle(tmp_path)
    found = run_example(folder, manifest.read(folder))
    assert found is not None
    forecast, stages = found
    assert forecast.times[0] == "2024-01-01T12:00:00"
    history = forecast.history.values[None].astype(np.float32)
    assert history.shape == (1, 8, 2)
    assert SPEC.calendar is not None
    ahead = SPEC.calendar.encode(forecast.timestamps)[None]
    np.testing.assert_allclose(forecast.values, SPEC.forecast(history, ahead)[0], rtol=1e-6)
    assert forecast.actual[0].tolist() == [13, 26]
    steps, spread = np.arange(1, 5)[:, None], history[0].std(axis=0)
    for level, values in forecast.quantiles.items():
        edges = forecast.values + (level - 0.5) * steps * spread
        np.testing.assert_allclose(values, edges, rtol=1e-4)
    assert [one.name for one in stages] == ["encoder.0.self", "encoder.1.self", "mixing.0"]


def test_page_of_a_bare_model(tmp_path: Path) -> None:
    page = render(write_bundle(tmp_path, Spec(name="bare")))
    assert Reader(page).titles == [
        *("The model", "Accuracy", "Intervals", "Verification", "How it was made"),
    ]
    assert "exported without its training data" in page
    assert "<svg" not in page


def test_graph_for_gpus_only_is_not_run(tmp_path: Path) -> None:
    spec = Spec(name="other", example=8, changes={"devices": ("cuda",)})
    page = render(write_bundle(tmp_path, spec))
    assert "nothing was run" in page
    assert "<svg" not in page


def test_large_attention_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings.model_fields["max_attention_values"], "default", 10)
    assert "Attention weights" not in render(full_bundle(tmp_path))


@pytest.mark.parametrize(("windows", "levels"), [(100, 4), (30, 2), (8, 0)])
def test_example_has_the_measured_levels(tmp_path: Path, windows: int, levels: int) -> None:
    folder = full_bundle(tmp_path)
    about = manifest.read(folder)
    assert about.calibration is not None
    report = about.calibration.model_copy(update={"windows": (windows, 100)})
    found = run_example(folder, about.model_copy(update={"calibration": report}))
    assert found is not None
    assert len(found[0].quantiles) == levels


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "models", Spec(name="bare", version="9"))
    return write_bundle(tmp_path / "models", Spec(name="bare", version="10"))


def test_command_writes_the_page(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A model's folder means its newest version.
    for given in (bundle, bundle.parent):
        assert done("report", given).stdout == "written to bare-10.html\n"
        page = tmp_path / "bare-10.html"
        assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
        assert "<title>bare@10</title>" in page.read_text("utf-8")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bare-10.html", "models"]
        page.unlink()


def test_page_is_replaced_only_with_overwrite(bundle: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    message = refused("report", bundle, f"--out={page}")
    assert message == f"foretell report: {page}: exists already; --overwrite replaces it\n"
    assert page.read_text() == "old"
    done("report", bundle, f"--out={page}", "--overwrite")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_command_refuses_unreadable_bundles_and_unwritable_pages(
    bundle: Path, tmp_path: Path
) -> None:
    page, nowhere = tmp_path / "page.html", tmp_path / "nowhere"
    message = refused("report", bundle, f"--out={nowhere / 'page.html'}")
    assert f"there is no folder {nowhere}" in message
    refused("report", tmp_path, f"--out={page}")
    (bundle / layout.WEIGHTS).write_bytes(b"")
    assert "weights.bin" in refused("report", bundle, f"--out={page}")
    assert not page.exists()
