"""The decision log: one record per request of the data plane, for operators and replay.

Laws
    * What a record may hold is one closed table (`fields`): ids and words of the policy,
      numbers, times. Never content, a title, a query, an address, a path or a token.
    * A refused request and a withheld unit are never sampled away; a withheld unit is not
      held back by the rate limit either. What was lost is counted, and the next record says it.
    * It fails no request, and the event loop waits for no sink.
    * It is written for operators: no byte of an answer depends on anything in this room.

This room does not know HTTP, stores or how a decision is made; stations leave it facts.
"""
