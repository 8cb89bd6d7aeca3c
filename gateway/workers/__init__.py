"""Several processes that serve one address: started, restarted, drained, and told as one.

Laws
    * A worker is a whole gateway with a replica's row of its own. Workers share nothing but the
      stores, the files of the settings and the port.
    * The kernel spreads connections (``SO_REUSEPORT``); nothing of a caller passes through the
      supervisor, so no fault of it reaches a caller.
    * A worker that dies takes its own connections with it and nothing else. A supervisor that
      dies takes its workers along: they end as with SIGTERM.

This room knows processes and the second listener. What a worker is made of is ``compose``'s.
"""
