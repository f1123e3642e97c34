from pathlib import Path

import pytest

from foretell.bundle.checksums import sha256
from foretell.data.errors import DataError
from foretell.data.reading import Reading
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.timeaxis.frequency import Frequency


@pytest.fixture
def source(tmp_path: Path) -> DataSource:
    path = tmp_path / "data.csv"
    path.write_text("when,a,b\n2024-01-01,1,2\n2024-01-02,3,4\n2024-01-03,5,6\n")
    splits = Splits(ends=(1, 2, 3))
    return DataSource(
        path=path,
        sha256=sha256(path),
        reading=Reading(time_column=("when",)),
        rows=3,
        splits=splits,
    )


def test_reads_the_channels_of_the_model(source: DataSource) -> None:
    panel = source.read(("b",), Frequency.parse("D"))
    assert panel.tables[0].values.tolist() == [[2], [4], [6]]


def test_refuses_a_changed_file(source: DataSource) -> None:
    source.path.write_text(source.path.read_text() + "2024-01-04,7,8\n")
    with pytest.raises(DataError, match=r"data\.csv: changed, or not the data"):
        source.read(("b",), Frequency.parse("D"))


def test_reads_a_copy(source: DataSource) -> None:
    copy = source.path.rename(source.path.with_name("moved.csv"))
    assert source.read(("b",), Frequency.parse("D"), copy).tables[0].values.tolist() == [
        [2],
        [4],
        [6],
    ]
    copy.write_text("when,a,b\n")
    with pytest.raises(DataError, match=r"moved\.csv: changed, .* that of .*data\.csv was"):
        source.read(("b",), Frequency.parse("D"), copy)


def test_refuses_a_missing_file(source: DataSource) -> None:
    source.path.unlink()
    with pytest.raises(DataError, match=r"data\.csv: missing"):
        source.read(("b",), Frequency.parse("D"))


def test_source_is_read_with_its_reading(source: DataSource) -> None:
    source.path.write_text("when;a\n2024-01-01;1,5\n2024-01-02;\n2024-01-03;2,5\n")
    reading = Reading(missing="interpolate", decimal=",")
    read_so = source.model_copy(update={"sha256": sha256(source.path), "reading": reading})
    panel = read_so.read(("a",), Frequency.parse("D"))
    assert panel.tables[0].values.tolist() == [[1.5], [2], [2.5]]


def test_checkpoints_record_the_source(source: DataSource) -> None:
    fields = source.model_dump(mode="json")
    assert DataSource.recorded(fields) == source
    assert DataSource.recorded(None) is None
    with pytest.raises(DataError, match=r"config\.json: data\.splits\.ends\.1: "):
        DataSource.recorded({**fields, "splits": {"ends": [1]}})


def test_a_home_folder_is_not_named(source: DataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(source.path.parent))
    written = source.model_dump_json()
    assert '"path":"~/data.csv"' in written
    assert DataSource.model_validate_json(written) == source
    monkeypatch.setenv("HOME", "/nowhere")
    assert str(source.path) in source.model_dump_json()
    assert DataSource.model_validate_json(written).path == Path("/nowhere/data.csv")
    other = source.model_copy(update={"path": Path("~somebody/data.csv")})
    assert DataSource.model_validate_json(other.model_dump_json()).path == other.path
