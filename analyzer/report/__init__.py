"""What happened in a period: from request logs, recordings or Prometheus."""
