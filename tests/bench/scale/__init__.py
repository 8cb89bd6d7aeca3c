"""Retrieval over generated corpora of 10^4 to 10^6 units: what grows, what is found, what leaks."""
