"""Where offline analyses get their data: recordings on disk."""
