"""Several processes as one server: what watches over them, and what each says of itself."""
