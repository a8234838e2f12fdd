"""LiteLLM's proxy with goodput's middleware around it: the exact way.

    export CONFIG_FILE_PATH=config.yaml GOODPUT_SOCKET=/run/goodput/requests.sock
    uvicorn goodput_litellm:app --port 4000

It times a request from its arrival, before LiteLLM's own work, to each of its tokens.
goodput_middleware.py must lie beside this file or on PYTHONPATH. The callback is then
not needed: do not read both logs, or give one of them `counts: false`.
"""

from goodput_middleware import GoodputMiddleware
from litellm.proxy.proxy_server import app as proxy

app = GoodputMiddleware(proxy)
