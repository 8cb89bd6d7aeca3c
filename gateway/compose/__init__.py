"""The composition root: the one room of the gateway that knows retrieval from the inside.

Import its modules, not this package: ``running`` loads every house (a second or two), while
``failure``, ``state`` and ``stores`` are light enough for a command's first line.
"""
