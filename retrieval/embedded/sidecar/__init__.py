"""A part of Qdrant's REST API over the official engine, in a process of its own.

``app`` (the door) -> ``operations`` (what can be asked) -> ``wire`` (JSON to engine) and
``collections`` (what is on disk). Only the operations that the product uses exist; anything
else is refused by name, so that nothing is silently done differently from a real server.
"""
