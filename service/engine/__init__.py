"""What runs models: repository, queues, sessions, and how doors reach it; it knows no HTTP."""
