"""Data of the demo: a typical year of hourly weather in Greensboro, North Carolina.

The replay also has that of Sand Point, Alaska. The sources are the TMY3 files in the package pvlib
(NREL's National Solar Radiation Data Base). They join measured months of several years to one year.
"""

from __future__ import annotations

from pathlib import Path

STATIONS = {"greensboro": "723170TYA.CSV", "sand_point": "703165TY.csv"}
# The months are from several years; with one year, the hours are consecutive.
_YEAR = 1990
_CHANNELS = {
    "ghi": "global_irradiance",
    "dni": "direct_irradiance",
    "temp_air": "temperature",
    "relative_humidity": "relative_humidity",
    "pressure": "pressure",
    "wind_speed": "wind_speed",
    "TotCld (tenths)": "cloud_cover",
}


def write_csv(path: Path, station: str = "greensboro") -> None:
    """Write 8760 rows atomically: `date` and seven channels (W/m², °C, %, mbar, m/s, tenths).

    Args:
        path: The file.
        station: One of `STATIONS`.
    """
    import pvlib

    source = Path(pvlib.__file__).parent / "data" / STATIONS[station]
    table, _ = pvlib.iotools.read_tmy3(source, coerce_year=_YEAR, map_variables=True)
    weather = table[list(_CHANNELS)].rename(columns=_CHANNELS)
    weather.index = weather.index.tz_localize(None).rename("date")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    weather.to_csv(partial)
    partial.rename(path)
