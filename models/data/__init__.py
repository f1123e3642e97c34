"""From a CSV file to standardised windows of history and target."""
