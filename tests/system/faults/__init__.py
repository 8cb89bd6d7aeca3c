"""The fault matrix: what a caller sees when a process of the product, or behind it, is killed."""
