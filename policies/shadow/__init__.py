"""A candidate policy beside a live one: what the two disagree about, counted and told.

Laws
    * Both are asked the same question; nothing that the candidate says decides anything.
    * A disagreement, a count and a sample name words of a policy and class ids, never a caller.

This room does not know requests, records or where counts are kept.
"""
