"""LiteLLM callback: one JSON line per attempt, and one per error that a client got.

Lines go to the file named by GOODPUT_LITELLM_LOG, without prompts, answers and keys. A
log rotator may rename the file: it is opened anew for each line.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

PATH = os.environ.get("GOODPUT_LITELLM_LOG", "/var/log/litellm/goodput.jsonl")
KEPT = (
    "call_type",
    "stream",
    "startTime",
    "endTime",
    "completionStartTime",
    "model_group",
    "model",
    "api_base",
    "prompt_tokens",
    "completion_tokens",
    "end_user",
)
SECRET = ("auth", "cookie", "key", "secret", "token")


def write(event: str, **members: object) -> None:
    """Appends a line in one write, so that several workers may share the file."""
    line = {"event": event, "written_at": time.time(), **members}
    data = json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"
    file = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def attempt(event: str, kwargs: dict[str, Any]) -> None:
    """Writes what LiteLLM knows of an attempt at a model."""
    payload = kwargs.get("standard_logging_object") or {}
    kept = {key: payload.get(key) for key in KEPT}
    error = payload.get("error_information") or {}
    metadata = payload.get("metadata") or {}
    usage = metadata.get("usage_object") or {}
    details = usage.get("prompt_tokens_details") or {}
    kept["cached_tokens"] = details.get("cached_tokens")
    kept["error_information"] = {k: error.get(k) for k in ("error_code", "error_class")}
    kept["model_parameters"] = {
        "stream": (payload.get("model_parameters") or {}).get("stream", False)
    }
    headers = metadata.get("requester_custom_headers") or {}
    kept["metadata"] = {
        "requester_custom_headers": {
            name: value
            for name, value in headers.items()
            if not any(word in name.lower() for word in SECRET)
        }
    }
    write(event, litellm_call_id=kwargs.get("litellm_call_id"), slo=kept)


class GoodputCallback(CustomLogger):
    """Hears of every attempt, and of every error that a client got."""

    async def async_log_success_event(
        self,
        kwargs: dict[str, Any],
        response_obj: object,  # noqa: ARG002
        start_time: object,  # noqa: ARG002
        end_time: object,  # noqa: ARG002
    ) -> None:
        """Writes an attempt that succeeded, or whose client left."""
        attempt("success", kwargs)

    async def async_log_failure_event(
        self,
        kwargs: dict[str, Any],
        response_obj: object,  # noqa: ARG002
        start_time: object,  # noqa: ARG002
        end_time: object,  # noqa: ARG002
    ) -> None:
        """Writes an attempt that failed; the request may yet be retried."""
        attempt("failure", kwargs)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: object,  # noqa: ARG002
        traceback_str: str | None = None,  # noqa: ARG002
    ) -> None:
        """Writes that a client got an error."""
        status = getattr(original_exception, "status_code", None)
        write(
            "proxy_failure_hook",
            litellm_call_id=request_data.get("litellm_call_id"),
            status=status or getattr(original_exception, "code", None) or 500,
        )


callback = GoodputCallback()
