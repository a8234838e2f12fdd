"""Streams of each interface of LLM servers, with what a record says of them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from asgi_driving import chat


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of an interface, and what a record of them says."""

    events: tuple[object, ...]
    content: tuple[int, ...]  # which of the events bring output
    says: dict[str, object]

    def body(self, end: str = "\n") -> bytes:
        """Returns the stream; named events where the interface names them."""
        return b"".join(event_bytes(event, end) for event in self.events)


def event_bytes(event: object, end: str) -> bytes:
    """Returns one event, named where its interface names it; text as it is."""
    """Returns one server-sent event; text goes out as it is."""
    if isinstance(event, str):
        return event.replace("\n", end).encode()
    name = event["type"] if isinstance(event, dict) and "type" in event else None
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {json.dumps(event)}{end}{end}".encode()


def _call(**function: str) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, "function": function}]}


def _finish(reason: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def text_chunk(text: str, **more: object) -> dict[str, object]:
    """Returns a chunk of a completion."""
    return {"id": "cmpl-1", "model": "m", "choices": [{"text": text, **more}]}


def native(text: str, tokens: int, finish: object = None) -> dict[str, object]:
    """Returns a chunk of the native interface."""
    meta = {
        "id": "sg-1",
        "prompt_tokens": 9,
        "completion_tokens": tokens,
        "cached_tokens": 3,
        "finish_reason": finish,
    }
    return {"text": text, "meta_info": meta}


DONE = "data: [DONE]\n\n"
RESPONSE = {"id": "resp-1", "model": "m", "status": "in_progress", "usage": None}
RESPONSE_END = {
    **RESPONSE,
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 6,
    },
}
COUNTS = {"prompt_tokens": 9, "cached_tokens": 3, "completion_tokens": 6}

STREAMS = {
    "chat": Stream(
        (
            chat({"role": "assistant", "content": ""}),
            ": keep-alive\n\n",
            chat({"reasoning_content": "hm"}),
            chat({"reasoning": "hm"}),
            chat({"content": "one two"}),
            chat({"content": None}),
            _finish("stop"),
            chat(
                usage={
                    "prompt_tokens": 9,
                    "completion_tokens": 6,
                    "prompt_tokens_details": {"cached_tokens": 3},
                }
            ),
            DONE,
        ),
        (2, 3, 4),
        {**COUNTS, "response_id": "chatcmpl-1", "finish_reason": "stop", "choices": 1},
    ),
    "tools": Stream(
        (
            chat({"role": "assistant", "content": None}),
            chat(_call(name="search", arguments="")),
            chat(_call(arguments='{"q":')),
            chat(_call(arguments="")),
            chat({"function_call": {"arguments": "1}"}}),
            chat({"refusal": "no"}),
            _finish("tool_calls"),
            DONE,
        ),
        (1, 2, 4, 5),
        {"finish_reason": "tool_calls", "completion_tokens": 4},
    ),
    "completions": Stream(
        (
            text_chunk(""),
            text_chunk("a"),
            text_chunk("b c", finish_reason="length", index=0),
            {"id": "cmpl-1", "choices": [], "usage": {"completion_tokens": 6}},
            DONE,
        ),
        (1, 2),
        {"response_id": "cmpl-1", "finish_reason": "length", "completion_tokens": 6},
    ),
    "responses": Stream(
        (
            {"type": "response.created", "response": RESPONSE},
            {"type": "response.in_progress", "response": RESPONSE},
            {"type": "response.output_item.added", "item": {"type": "message"}},
            {"type": "response.reasoning_text.delta", "delta": "hm"},
            {"type": "response.output_text.delta", "delta": "a"},
            {"type": "response.output_text.delta", "delta": ""},
            {"type": "response.output_text.done", "text": "a"},
            {"type": "response.output_item.added", "item": {"name": "search"}},
            {"type": "response.function_call_arguments.delta", "delta": "{}"},
            {
                "type": "response.completed",
                "response": {**RESPONSE_END, "status": "completed"},
            },
        ),
        (3, 4, 7, 8),
        {**COUNTS, "response_id": "resp-1", "finish_reason": "completed"},
    ),
    "responses-incomplete": Stream(
        (
            {"type": "response.output_text.delta", "delta": "a"},
            {
                "type": "response.incomplete",
                "response": {
                    **RESPONSE_END,
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                },
            },
        ),
        (0,),
        {**COUNTS, "finish_reason": "max_output_tokens"},
    ),
    "messages": Stream(
        (
            {
                "type": "message_start",
                "message": {
                    "id": "msg-1",
                    "model": "m",
                    "usage": {"input_tokens": 9, "output_tokens": 1},
                },
            },
            {"type": "ping"},
            {
                "type": "content_block_start",
                "content_block": {"type": "thinking", "thinking": ""},
            },
            {"type": "content_block_delta", "delta": {"thinking": "hm"}},
            {"type": "content_block_delta", "delta": {"signature": "s"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_delta", "delta": {"text": "a"}},
            {
                "type": "content_block_start",
                "content_block": {"type": "tool_use", "name": "search"},
            },
            {"type": "content_block_delta", "delta": {"partial_json": "{}"}},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 3,
                    "cache_creation_input_tokens": 1,
                    "output_tokens": 6,
                },
            },
            {"type": "message_stop"},
        ),
        (3, 6, 7, 8),
        {**COUNTS, "response_id": "msg-1", "finish_reason": "end_turn"},
    ),
    "generate": Stream(
        (
            native("", 1),
            native("a", 2),
            native("a b", 4),
            native("a b", 4),
            native("a b c", 6, {"type": "length", "length": 6}),
            DONE,
        ),
        (1, 2, 4),
        {**COUNTS, "response_id": "sg-1", "finish_reason": "length"},
    ),
}
