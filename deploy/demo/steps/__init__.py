"""The steps of the tour, one subject a file. A step restores whatever it changed."""
