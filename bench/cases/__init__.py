"""One module a case, or for some that are alike: `measure(run)` returns its tables."""
