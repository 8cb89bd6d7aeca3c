"""Answers that outlive their decision: WebSockets, events, long bodies of opaque routes.

Laws
    * Whatever stays open is registered, and decided anew (stations *match* to *decide*) when the
      policy changes, when somebody says that something was revoked, and every half minute. What
      would not be allowed in the same way any more ends within two seconds.
    * What cannot be decided in that time is not allowed.
    * When a consent of its subject ends, whatever is open to it ends (`consents.py`).
    * An end is told in the words of the protocol: 1008, 1012 and 1001 on a WebSocket; on a
      stream of events an end after the last whole event; a reset on everything else.

Frames and bytes themselves are the relay's. No rule stands here.

Source: architecture section 2, G5; attack log section 4 ("WebSocket", "Streaming", "Drain").
"""
