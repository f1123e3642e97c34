"""From the bytes of a request to a job, and from its outputs to the bytes of the answer."""
