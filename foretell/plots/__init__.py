"""Pictures of forecasts, errors and evidence."""
