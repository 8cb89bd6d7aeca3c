"""The parser of requests and what uvicorn builds on it: the C one, or no gateway.

Without it uvicorn would silently fall back to a pure-Python parser that keeps ambiguous
connections open. Whoever needs either imports it from here, so that its absence has one name.

Source: attack log section 4 and row S11.
"""

from __future__ import annotations

from gateway.errors import PartMissing

try:
    import httptools as httptools
except ImportError as error:
    raise PartMissing(
        "`httptools`, the parser of requests, is not installed; reinstall the locked requirements"
    ) from error

from uvicorn.protocols.http.httptools_impl import STATUS_LINE as STATUS_LINE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpToolsProtocol
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle as RequestResponseCycle
