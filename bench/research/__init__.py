"""What takes hours or days: each is a script, whose results are kept with the code."""
