"""One module a subcommand, each with a click command named `command`; imported when it is run."""
