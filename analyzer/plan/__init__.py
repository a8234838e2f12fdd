"""Plans: a twin fitted to a sweep says how much a server takes, and what would help."""
