"""WebSockets as bytes: frames, and one leg of a relayed socket.

What both legs have in common, towards callers and towards upstreams. Knows neither, and no policy.

Source: RFC 6455.
"""
