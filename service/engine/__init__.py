"""What runs models: repository, queues and sessions, and how HTTP workers reach it."""
