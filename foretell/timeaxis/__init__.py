"""Frequencies, calendars, time zones and gaps of series; needs numpy alone."""
