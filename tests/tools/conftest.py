"""What tests of tools share."""

from __future__ import annotations

from support.places import mounted, place, untouched, way

__all__ = ["mounted", "place", "untouched", "way"]
