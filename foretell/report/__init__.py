"""An HTML page about a bundle."""
