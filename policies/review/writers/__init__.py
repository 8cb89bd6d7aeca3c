"""One writer per format. None of them knows which report it writes."""
