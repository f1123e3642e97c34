"""The `foretell` command: arguments in, calls to the packages out."""
