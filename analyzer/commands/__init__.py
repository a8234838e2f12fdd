"""The subcommands of `goodput`, one module each."""
