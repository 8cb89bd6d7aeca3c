"""Surfaces: the doors of the gateway. Adapters only; no rule lives here."""
