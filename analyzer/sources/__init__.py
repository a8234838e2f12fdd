"""Where data comes from: pages over HTTP, recordings on disk."""
