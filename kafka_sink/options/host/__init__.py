"""What options name on this host: files, variables of the environment, functions of the user; and what whoever operates
Spark allows of it."""
