"""Before and after: is B better than A, and were the loads alike."""
