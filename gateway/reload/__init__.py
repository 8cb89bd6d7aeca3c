"""A new policy while requests are served: built elsewhere, brought over in small parts, swapped.

Laws
    * What serves never compiles. A release is accepted, compiled and proven in a process of its
      own; whatever happens to that process, the policy in force stays (last good).
    * Nobody waits for a new policy: it comes over in parts of some tenths of a millisecond, with
      everybody else's work between two of them, and comes into force by one assignment.
    * A notification is a reason to look, never the truth. What the database says is looked at
      again after a lost connection and every few seconds anyway.
    * A failure says so: one line in the log, a count in the metrics, a code in `gate.replica`.

This room does not know HTTP, tokens or what a policy says.
"""
