"""One module for each case, or for several similar ones: `measure(run)` returns the tables."""
