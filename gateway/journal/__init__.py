"""The journal: security events made durable before anything leaves, chained afterwards.

Laws: an event that `record` returned for survives the process; a row is never changed or
removed; no row holds content, an address or a query. The journal knows neither HTTP nor
policy: it is told what happened.
"""
