"""Prints a CycloneDX bill of materials of the Python packages that it runs among."""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions, version

PRODUCT = "llm-goodput"


def bill() -> dict[str, object]:
    """Returns the bill: the product, and every other distribution as a component."""
    found = {d.metadata["Name"].lower(): d for d in distributions()}
    product = _component(found.pop(PRODUCT))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**product, "type": "application"}},
        "components": [
            *(_component(found[name]) for name in sorted(found)),
            {
                "type": "platform",
                "name": sys.implementation.name,
                "version": ".".join(map(str, sys.version_info[:3])),
            },
        ],
    }


def _component(distribution: Distribution) -> dict[str, object]:
    name = distribution.metadata["Name"].lower().replace("_", "-")
    purl = f"pkg:pypi/{name}@{version(name)}"
    component: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": version(name),
        "purl": purl,
        "bom-ref": purl,
    }
    metadata = distribution.metadata
    # The newer field holds an SPDX expression; the older one may hold a whole licence.
    if "License-Expression" in metadata:
        component["licenses"] = [{"expression": metadata["License-Expression"]}]
    elif "License" in metadata and "\n" not in metadata["License"]:
        component["licenses"] = [{"license": {"name": metadata["License"]}}]
    return component


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
