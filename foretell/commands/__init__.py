"""One module for each subcommand, with a click command named `command`; imported on use."""
