"""Nearly regular times, which are moved to their steps, and remedies for irregular ones."""

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
# Usual spacings of clocks and devices, in microseconds.
_USUAL = np.array(
    [
        *(1000 * ms for ms in (1, 2, 5, 10, 20, 25, 40, 50, 100, 200, 250, 500)),
        *(_SECOND * s for s in (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800)),
        *(_HOUR * hours for hours in (1, 2, 3, 4, 6, 8, 12, 24)),
    ]
)
# Largest delay of a device, as a share of the step and in absolute terms.
_TOLERANCE, _LATEST = 0.05, 600 * _SECOND
# Share of a step that is tolerated where most times are off it.
_JITTER = 0.2
# Shortest and longest month, in days.
_DAYS = (28, 31)
# Most steps per row, beyond which filling is not proposed.
_FILLED = 40
# Zones that messages prefer among those with the same clock.
_ZONES = (
    *("Europe/London", "Europe/Berlin", "Europe/Athens", "America/New_York", "America/Chicago"),
    *("America/Denver", "America/Los_Angeles", "America/Sao_Paulo", "Asia/Tokyo", "Asia/Shanghai"),
    *("Asia/Kolkata", "Australia/Sydney"),
)
# Number of series that show the spacing.
_SERIES = 500
# Number of times that select candidate zones.
_TELLING = 20
# Up to this number of rows, or this percentage, rows off the steps are mistakes.
_FEW = 2
# A distance of more usual steps than this is a hole and not part of a pattern.
_HOLE = 4


def made_regular(
    moments: Moments,
    series: NDArray[np.int64],
    frequency: Frequency | None,
    zone: ZoneInfo | None,
) -> Moments:
    """Move times slightly off their steps onto them; read days of a zone in UTC as UTC.

    Args:
        moments: Times of the rows.
        series: `[rows]`, the number of each row's series.
        frequency: Spacing of the rows; found if not given.
        zone: Time zone of the clock, if it is known.

    Raises:
        DataError: times are so far off their steps that they only move if a frequency is given.
    """
    there = ~np.isnat(moments.walls)
    if not there.any():
        return moments
    if moments.offsets is None and zone is not None:
        local = _local(moments.walls[there], zone)
        if local is not None and _keeps(local, _DAY) and not _keeps(moments.walls[there], _DAY):
            offsets = np.zeros(len(there), "m8[us]")
            hour = str(local[0])[11:16]
            note = f"times are read as UTC; in {zone.key} they are at {hour}"
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
    """The length of equal steps that times are near but not on; None if they are on steps."""
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
    """The distances of neighbouring times in their series."""
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
    """The step nearest to each time; None if one is too far, or two times share a step."""
    angles = times % step / step * 2 * np.pi
    middle = np.angle(np.exp(1j * angles).mean()) / (2 * np.pi) * step
    # Steps start at whole minutes or seconds, if the mean deviation is small.
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
    """The remedy for times between two steps.

    Args:
        moments: Times of all rows.
        series: `[rows]`, the number of each row's series.
        frequency: Spacing of the rows.
        zone: Time zone of the clock, if it is known.
        off: Rows that are off the steps.
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
    # Holes would not be filled.
    near = apart[apart <= _HOLE * middle]
    advice = ""
    if _DAYS[0] * _DAY <= middle <= _DAYS[1] * _DAY:
        advice = "if each row is a month, write 2024-01 in place of 2024-01-15; "
    if near.sum() > _FILLED * step * len(near):
        return (
            f"{advice}correct it, or bring the rows to regular steps first, such as by "
            "frame.resample('h').mean() of pandas"
        )
    gap = int(near.max()) // step - 1
    longest = f" --max-gap {gap}" if gap > 1 else ""
    share = 1 - step * len(near) / near.sum()
    return (
        f"{advice}correct it, or choose steps on which all rows lie and fill the missing ones, "
        f"which are {share:.0%} of all: --frequency {_named(step)} --missing interpolate{longest}"
    )


def _clock(utc: Timestamps, frequency: Frequency, zone: ZoneInfo | None) -> str | None:
    """The remedy for times that are regular in a local clock, but not in UTC; None otherwise."""
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
            "drop --time-zone, such as by pd.to_datetime(frame['date'], utc=True)"
            f".dt.tz_convert('{name}').dt.tz_localize(None) of pandas"
        )
    return f"they keep it in a local clock, such as --time-zone {name}"


def _zone_of(utc: Timestamps, length: int) -> str | None:
    """A zone in whose clock all times are steps apart, if possible steps from midnight.

    Args:
        utc: `[time]`, times in UTC.
        length: Length of a step.
    """
    phases = utc.astype(np.int64) % length
    off = np.flatnonzero(phases != phases[0])
    # A clock change of one hour is itself a whole step of an hour.
    if length <= _HOUR or not len(off):
        return None
    every = np.arange(0, len(utc), max(len(utc) // _TELLING, 1))
    # A few times rule out nearly all wrong zones.
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
    """Whether all distances are whole steps."""
    return bool((np.diff(walls).astype(np.int64) % length == 0).all())


def _local(utc: Timestamps, zone: ZoneInfo) -> Timestamps | None:
    """Wall-clock times; None beyond the supported years."""
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
