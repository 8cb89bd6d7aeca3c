"""Forward-auth: the decision of a request that somebody else's proxy relays.

Laws
    * Only a peer that policy believes under every name of a dialect may ask in it.
    * Only routes without governed units are decided here: what has to be inspected is answered
      by the gateway itself.
    * Whatever is not a clean allow is a refusal; an allow is a 200 with every identity header.
"""
