"""The builder of the dashboards: typed, composed of small functions, run by hand.

`python -m builder` writes what `boards.build` returns to `dashboards/json`. It needs
grafana-foundation-sdk, which nobody needs who only uses the dashboards.
"""
