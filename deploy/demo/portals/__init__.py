"""Three small portals that stand behind the gateway, to show what an upstream does.

A portal believes the gateway's signed assertion and nothing else, and retrieves for its user
with the delegation that the same hop brought plus its own credential. It imports no house.
"""
