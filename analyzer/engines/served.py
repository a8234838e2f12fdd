"""What an engine says of its models at `/v1/models`: names, aliases, length limit."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import msgspec

from analyzer.flow import Served


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card] = []


def served_models(body: bytes) -> Served:
    """Returns what the body of `/v1/models` says. Raises ValueError.

    vLLM lists one card a served name, the first being the name in its metrics, and
    one a LoRA adapter, whose parent is the model.
    """
    try:
        cards = msgspec.json.decode(body, type=_Cards).data
    except msgspec.DecodeError as error:
        raise ValueError(f"not a list of models: {error}") from error
    base = next((card for card in cards if card.parent is None), None)
    if base is None:
        return Served()
    names = {card.id for card in cards if card.root == base.root and not card.parent}
    adapters = {card.id for card in cards if card.parent in names}
    aliases = dict.fromkeys((names | adapters) - {base.id}, base.id)
    return Served(aliases, base.max_model_len)


def sibling_url(metrics_url: str, path: str) -> str:
    """Returns the URL of another *path* of the server behind a `/metrics` URL."""
    parts = urlsplit(metrics_url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
