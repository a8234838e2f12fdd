"""A simulated serving site: scenarios, and the pages and logs that it would write."""
