"""Coverage-guided fuzzing of the strict loader: ``make fuzz SECONDS=60``.

``law`` says what must hold of any policy folder, ``reach`` what a folder lets anybody do,
``edits`` how bytes become a spoilt folder, ``seeds`` where the search starts. ``python -m
tests.fuzz`` runs it under atheris in an environment of its own; ``test_law`` runs the same law
over every seed and some random edits with the other tests. Nothing but these two knows a
fuzzer, and nothing here but ``test_law`` may import pytest.
"""
