"""When the steps of a series are: clocks, zones, frequencies, and times as they are written."""
