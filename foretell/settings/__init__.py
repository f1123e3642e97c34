"""Settings of a training: presets, YAML files and `--set`, in one form."""
