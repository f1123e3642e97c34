"""From a table, in a file or a frame, to series, their splits and scalers."""
