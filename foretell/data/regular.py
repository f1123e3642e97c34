"""Times that are nearly regular, and what to do about those that are not."""

from __future__ import annotations

from zoneinfo import ZoneInfo, available_timezones

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.timeaxis.errors import FrequencyError, TimestampError
from foretell.timeaxis.frequency import MICROSECONDS_IN, Frequency, Unit
from foretell.timeaxis.regularity import infer
from foretell.timeaxis.timestamps import Timestamps
from foretell.timeaxis.zones import find_zone, offsets_at

_SECOND, _HOUR, _DAY = (MICROSECONDS_IN[unit] for unit in (Unit.SECOND, Unit.HOUR, Unit.DAY))
# Spacings that clocks and devices keep.
_USUAL = np.array(
    [
        *(1000 * ms for ms in (1, 2, 5, 10, 20, 25, 40, 50, 100, 200, 250, 500)),
        *(_SECOND * s for s in (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800)),
        *(_HOUR * hours for hours in (1, 2, 3, 4, 6, 8, 12, 24)),
    ]
)
# Of a step, and of all steps: what a device may be late.
_TOLERANCE, _LATEST = 0.05, 600 * _SECOND
# Of a step, where most times are off it and the steps are known.
_JITTER = 0.2
# Of a month.
_DAYS = (28, 31)
# Steps that are filled in for each row at most.
_FILLED = 40
# Zones to name first among those with the same clock.
_ZONES = (
    *("Europe/London", "Europe/Berlin", "Europe/Athens", "America/New_York", "America/Chicago"),
    *("America/Denver", "America/Los_Angeles", "America/Sao_Paulo", "Asia/Tokyo", "Asia/Shanghai"),
    *("Asia/Kolkata", "Australia/Sydney"),
)
# Series that tell the spacing of all.
_SERIES = 500
# Moments that tell whether a clock may be that of a zone.
_TELLING = 20
# So many rows, or hundredths of all, that are off the steps are mistakes.
_FEW = 2
# Of a usual distance, one that is no part of a pattern.
_HOLE = 4


def made_regular(
    moments: Moments,
    series: NDArray[np.int64],
    frequency: Frequency | None,
    zone: ZoneInfo | None,
) -> Moments:
    """Times that are seconds off their steps moved there; days of a zone's clock read as UTC.

    Args:
        moments: `[rows]`.
        series: `[rows]`, the number of the series that each is of.
        frequency: Their spacing; found if not given.
        zone: Whose clock they are about, if it is known.

    Raises:
        DataError: most times are off steps that only a given frequency would move them to.
    """
    there = ~np.isnat(moments.walls)
    if not there.any():
        return moments
    if moments.offsets is None and zone is not None:
        local = _local(moments.walls[there], zone)
        if local is not None and _keeps(local, _DAY) and not _keeps(moments.walls[there], _DAY):
            offsets = np.zeros(len(there), "m8[us]")
            hour = str(local[0])[11:16]
            note = f"times are read as UTC, in which they are {hour} by the clock of {zone.key}"
            return Moments(moments.walls, offsets, None, moments.wrong, [note])
    offsets = np.zeros(len(there), "m8[us]") if moments.offsets is None else moments.offsets
    times = (moments.walls - offsets).astype(np.int64)
    moved = times.copy()
    step = _step(moments, times, series, frequency)
    changes = len(np.unique(offsets[there])) > 1 or zone is not None
    if step is None or (changes and step == _DAY):
        return moments
    apart = _apart(times, series, there)
    strays = 2 * np.count_nonzero(apart % step) > len(apart)
    for number in np.unique(series[there]):
        own = np.flatnonzero(there & (series == number))
        nearest = _nearest(times[own], step, _TOLERANCE)
        if nearest is None and strays:
            nearest = _nearest(times[own], step, _JITTER)
        if nearest is None:
            return moments
        moved[own] = nearest
    most = np.abs(moved - times)[there].max()
    if not most:
        return moments
    name = frequency or Frequency.parse(_named(step))
    if frequency is None and most > min(_TOLERANCE * step, _LATEST):
        raise DataError(
            f"times are up to {most / _SECOND:.4g} s off steps of frequency {name}; "
            f"--frequency {name} moves them there"
        )
    note = f"times up to {most / _SECOND:.4g} s off a step of frequency {name} are moved there"
    walls = moments.walls + (moved - times).astype("m8[us]")
    return Moments(walls, moments.offsets, moments.zone, moments.wrong, [note])


def _step(
    moments: Moments,
    times: NDArray[np.int64],
    series: NDArray[np.int64],
    frequency: Frequency | None,
) -> int | None:
    """The length of equal steps that times are near, if they are not on them."""
    if frequency is not None:
        unit = MICROSECONDS_IN.get(frequency.unit)
        length = None if unit is None else unit * frequency.multiple
        return length if length is not None and length <= _DAY else None
    found = _apart(times, series, ~np.isnat(moments.walls))
    if not len(found) or (len(np.unique(found)) == 1 and _is_frequency(int(found[0]))):
        return None
    middle = np.median(found)
    usual = int(_USUAL[np.abs(_USUAL / middle - 1).argmin()])
    is_on = bool((found % usual == 0).all())
    return None if is_on or abs(usual / middle - 1) > _TOLERANCE else usual


def _apart(
    times: NDArray[np.int64], series: NDArray[np.int64], there: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """How far times are apart in their series."""
    apart = [
        np.diff(np.unique(times[there & (series == number)]))
        for number in np.unique(series[there])[:_SERIES]
    ]
    return np.concatenate([*apart, np.empty(0, np.int64)])


def _is_frequency(step: int) -> bool:
    try:
        infer(np.arange(3) * np.timedelta64(step, "us") + np.datetime64(0, "us"))
    except FrequencyError:
        return False
    return True


def _nearest(times: NDArray[np.int64], step: int, tolerance: float) -> NDArray[np.int64] | None:
    """The steps that times are near; None if one is not, or two are of one step."""
    angles = times % step / step * 2 * np.pi
    middle = np.angle(np.exp(1j * angles).mean()) / (2 * np.pi) * step
    # The clock of a device is a little off one that shows whole minutes.
    phase = next(
        (
            round(middle / unit) * unit
            for unit in (step, 60 * _SECOND, _SECOND)
            if abs(middle - round(middle / unit) * unit) <= min(tolerance * step, 60 * _SECOND)
        ),
        0,
    )
    nearest = np.round((times - phase) / step).astype(np.int64) * step + phase
    if np.abs(nearest - times).max() > min(tolerance * step, _LATEST):
        return None
    return nearest if len(np.unique(nearest)) == len(np.unique(times)) else None


def remedy(
    moments: Moments,
    series: NDArray[np.int64],
    frequency: Frequency,
    zone: ZoneInfo | None,
    off: NDArray[np.intp],
) -> str:
    """What to do where times lie between two steps.

    Args:
        moments: `[rows]`, all of the table.
        series: `[rows]`, the number of the series that each is of.
        frequency: Their spacing, which some do not keep.
        zone: Whose clock they are about, if it is known.
        off: The rows that do not keep it.
    """
    there = ~np.isnat(moments.walls)
    offsets = np.timedelta64(0) if moments.offsets is None else moments.offsets
    utc = moments.walls - offsets
    if (found := _clock(utc[there & (series == series[off[0]])], frequency, zone)) is not None:
        return found
    if len(off) <= max(_FEW, _FEW / 100 * np.count_nonzero(there)):
        return "correct it, or take the row out"
    steps = utc if frequency.sub_daily else moments.walls
    if zone is not None and moments.offsets is not None and not frequency.sub_daily:
        steps = steps.copy()
        steps[there] = utc[there] + offsets_at(utc[there], zone)
    order = np.lexsort([steps[there], series[there]])
    apart = np.diff(steps[there][order])[np.diff(series[there][order]) == 0].astype(np.int64)
    apart = apart[apart > 0]
    if not len(apart):
        return "correct it"
    step, middle = int(np.gcd.reduce(apart)), np.median(apart)
    # Holes stay.
    near = apart[apart <= _HOLE * middle]
    told = ""
    if _DAYS[0] * _DAY <= middle <= _DAYS[1] * _DAY:
        told = "where each row is of a month, write 2024-01 in place of 2024-01-15; "
    if near.sum() > _FILLED * step * len(near):
        return (
            f"{told}correct it, or bring the rows to regular steps first, such as by "
            "frame.resample('h').mean() of pandas"
        )
    gap = int(near.max()) // step - 1
    longest = f" --max-gap {gap}" if gap > 1 else ""
    share = 1 - step * len(near) / near.sum()
    return (
        f"{told}correct it, or have steps on which all rows lie, and those between them filled, "
        f"which are {share:.0%} of all: --frequency {_named(step)} --missing interpolate{longest}"
    )


def _clock(utc: Timestamps, frequency: Frequency, zone: ZoneInfo | None) -> str | None:
    """What to do where times keep a frequency by a clock that changes, and not in UTC."""
    length = _DAY
    if frequency.sub_daily:
        length = int(np.diff(frequency.steps_from(utc[0], 2))[0].astype(np.int64))
    if zone is not None:
        local = _local(utc, zone)
        name = zone.key if local is not None and _keeps(local, length) else None
    else:
        name = _zone_of(utc, length)
    if name is None:
        return None
    if frequency.sub_daily:
        return (
            f"they keep it by the clock of {name}: write what it shows, without an offset, and "
            "leave --time-zone out, such as by pd.to_datetime(frame['date'], utc=True)"
            f".dt.tz_convert('{name}').dt.tz_localize(None) of pandas"
        )
    return f"they keep it in UTC by a clock such as that of --time-zone {name}"


def _zone_of(utc: Timestamps, length: int) -> str | None:
    """A zone by whose clock all moments are steps of a day; where there is one, from midnight on.

    Args:
        utc: `[time]`.
        length: Of a step.
    """
    phases = utc.astype(np.int64) % length
    off = np.flatnonzero(phases != phases[0])
    # An hour more or less is a step of an hour, too.
    if length <= _HOUR or not len(off):
        return None
    every = np.arange(0, len(utc), max(len(utc) // _TELLING, 1))
    # A few of them tell nearly all zones that are none.
    some = utc[[*every, off[0], off[-1]]].tolist()
    found: str | None = None
    for name in (*_ZONES, *sorted(name for name in available_timezones() if "/" in name)):
        try:
            zone = find_zone(name)
            local = [zone.fromutc(each.replace(tzinfo=zone)).replace(tzinfo=None) for each in some]
        except (TimestampError, OverflowError):
            continue
        walls = np.array(local, "M8[us]")
        is_round = walls[0].astype(np.int64) % length == 0
        if (found is None or is_round) and _keeps(walls, length):
            whole = _local(utc, zone)
            if whole is not None and _keeps(whole, length):
                if is_round:
                    return name
                found = name
    return found


def _keeps(walls: Timestamps, length: int) -> bool:
    """Whether all times are some steps of one length from each other."""
    return bool((np.diff(walls).astype(np.int64) % length == 0).all())


def _local(utc: Timestamps, zone: ZoneInfo) -> Timestamps | None:
    """What a clock shows; None beyond the years that it knows."""
    try:
        return utc + offsets_at(utc, zone)
    except TimestampError:
        return None


def _named(step: int) -> str:
    """The frequency of equal steps."""
    unit = next(unit for unit, size in reversed(MICROSECONDS_IN.items()) if step % size == 0)
    if unit is Unit.WEEK:
        unit = Unit.DAY
    return str(Frequency(unit, step // MICROSECONDS_IN[unit]))
