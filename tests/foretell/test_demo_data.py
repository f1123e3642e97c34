import numpy as np
import pytest

from foretell.data.reading import read
from foretell.data.table import Table
from foretell.demo_data import write_csv


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("demo") / "new" / "greensboro.csv"
    write_csv(path)
    return read(path).tables[0]


def test_a_year_of_hours(table: Table):
    assert len(table) == 8760
    assert str(table.frequency) == "h"
    assert table.utc_offset is None
    assert len(set(table.timestamps.astype("M8[D]").tolist())) == 366


def test_channels(table: Table):
    assert table.channels == (
        "global_irradiance",
        "direct_irradiance",
        "temperature",
        "relative_humidity",
        "pressure",
        "wind_speed",
        "cloud_cover",
    )


def test_values_are_weather(table: Table):
    by_name = dict(zip(table.channels, table.values.T, strict=True))
    assert 0 <= by_name["global_irradiance"].min() < 900 < by_name["global_irradiance"].max() < 1100
    assert -20 < by_name["temperature"].min() < 0 < 30 < by_name["temperature"].max() < 40
    assert 0 < by_name["relative_humidity"].min() <= by_name["relative_humidity"].max() <= 100
    assert 950 < by_name["pressure"].min() < by_name["pressure"].max() < 1050
    assert by_name["wind_speed"].min() == 0
    assert set(by_name["cloud_cover"]) == set(range(11))


def test_the_sun_shines_at_noon(table: Table):
    hour = table.timestamps.astype("M8[h]").astype(int) % 24
    irradiance = table.values[:, 0]
    means = np.array([irradiance[hour == h].mean() for h in range(24)])
    assert 11 <= means.argmax() <= 14
    assert means[[0, 1, 2, 3, 23]].max() == 0
