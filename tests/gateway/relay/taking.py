"""``python -m tests.gateway.relay.taking DSN ROUTE TIMES``: a gateway's use of a shared store.

It asks for the allowance of one caller again and again, and prints how often it got one.
"""

from __future__ import annotations

import asyncio
import sys

from gateway.relay.admission import Allowance
from gateway.relay.shared_rates import SharedRates

ALLOWANCE = Allowance(count=1, period_s=3_600, burst=20)


async def taken(dsn: str, route: str, times: int) -> int:
    """How many of ``times`` requests at once passed, by the store's word."""
    rates = SharedRates(dsn, size=4)
    await rates.open()
    try:
        waits = [await rates.take(route, "caller", ALLOWANCE) for _ in range(times)]
        if rates.decisions["alone",]:
            raise RuntimeError("the store did not answer")
        return waits.count(0)
    finally:
        await rates.close()


if __name__ == "__main__":
    sys.stdout.write(str(asyncio.run(taken(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
