"""Settings of a training from presets, YAML files and `--set`."""
