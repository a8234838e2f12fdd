"""The daemon of llm-goodput: samples sources, keeps state, serves metrics."""
