"""Other servers with the same model, as their users would serve it: `SCRIPT GRAPH PORT`."""
