"""Clients of the gateway's HTTP interface for other people's programs.

``api`` needs httpx; ``langchain`` and ``llamaindex`` need the extra of that name. None of them
imports anything of the gateway.
"""
