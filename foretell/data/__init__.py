"""Reading of tables from files and frames; series, their splits and scalers."""
