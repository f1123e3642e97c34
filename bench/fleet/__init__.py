"""Many servers: a simulation of their queues and batches, next to servers on this machine."""
