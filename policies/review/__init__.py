"""What a reviewer asks of a policy before it goes live. Offline: files in, reports out.

Laws
    * Every report is computed from the compiled table and the parsed rows, never from text.
    * A report is plain frozen data. One *page* form of it serves text and Markdown, its own
      fields serve JSON, its findings serve SARIF and JUnit (``policies.review.writers``).
    * What cannot be shown to narrow is told as widening.

This room does not know settings, databases, HTTP or the live system.
"""
