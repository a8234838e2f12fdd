"""Prometheus rules: recordings and alerts that follow from the SLO classes."""
