"""Time: frequencies, calendars, zones and gaps of series, on numpy alone."""
