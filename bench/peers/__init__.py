"""The same model as the users of other servers would serve it: `SCRIPT GRAPH PORT`."""
