"""Telemetry: what operators see of a request after it is decided.

Laws
    * Hand-made, on the data path only. Stations leave times; one call records the request.
    * Nothing here is needed for a decision: a dead collector, a full queue or a blocked
      terminal loses telemetry, never an event (the journal's row is the truth), and slows
      no request.
    * Only the attributes named in `fields` leave. Never content, an address, a query, a path.
"""
