"""The parts of a model: its device and memory, its self-test, tuning and health, its intervals."""
