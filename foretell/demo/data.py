"""The demo's data: a typical year of hourly weather in Greensboro, North Carolina.

It is the TMY3 file that the package pvlib carries (NREL's National Solar Radiation Data Base):
measured months of several years, joined to one.
"""

from __future__ import annotations

from pathlib import Path

_STATION = "723170TYA.CSV"
# The months come from several years; a common one makes the hours follow each other.
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


def write_csv(path: Path) -> None:
    """Write 8760 rows, all or none: `date` and seven channels (W/m², °C, %, mbar, m/s, tenths)."""
    import pvlib

    source = Path(pvlib.__file__).parent / "data" / _STATION
    table, _ = pvlib.iotools.read_tmy3(source, coerce_year=_YEAR, map_variables=True)
    weather = table[list(_CHANNELS)].rename(columns=_CHANNELS)
    weather.index = weather.index.tz_localize(None).rename("date")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    weather.to_csv(partial)
    partial.rename(path)
