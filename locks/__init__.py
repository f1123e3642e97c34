"""Files of requirements with the hashes of their wheels, and `make lock`, which writes them."""
