"""Figures, not tests: ``make bench`` (``SUITE=retrieve`` or ``SUITE=decide`` for one of them).

Each suite prints what it ran on, because a figure without its machine says nothing. Nothing
here asserts a time: a busy machine must not break a build.
"""
