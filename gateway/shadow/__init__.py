"""A candidate policy beside the live one: every decision looked up in both, differences counted.

Laws
    * It changes no answer and fails no request: it looks on after the answer is decided, and
      what goes wrong in it is counted as a fault.
    * Without a candidate it costs one reference read.
    * Counts and samples hold words of policies and class ids; see `policies.shadow`.

This room does not know HTTP, tokens or how a policy is compiled.
"""
