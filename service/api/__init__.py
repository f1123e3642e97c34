"""The routes: from the body of a request to a job, from its outputs to the body of an answer."""
