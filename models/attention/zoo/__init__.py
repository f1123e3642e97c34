"""Mechanisms that no published checkpoint has. Nothing imports them; the registry finds them."""
