"""What operators may ask of the running gateway, on the second listener.

Laws
    * Whoever asks is authenticated like any caller, and allowed by ``rules/admin.csv`` or not.
    * A use is journaled, durably, before its answer leaves; without the row nothing leaves.
    * Ids and labels only: no title, no text, no address ever stands in an answer. The one
      exception are threads of a source that the operator's own token names (``threads``).
"""
