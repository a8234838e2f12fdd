"""The SLO analyzer of llm-goodput: pure core first, input and output at the rim."""
