"""The HTTP doors: each turns a request into a job and its outcome into an answer."""
