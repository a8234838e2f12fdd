"""What a check finds: something that an operator may want to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what is the matter, and in `fix` what changes it.

    `snippet` is configuration to add, which stands in `file` of this project.
    """

    code: str
    severity: str  # warning or info
    message: str
    fix: str = ""
    file: str = ""
    snippet: str = ""
