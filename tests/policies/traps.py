"""The measured traps as edits of the shipped files: tests refuse them, the fuzzer starts there.

Numbers are those of the list of pitfalls in the project's policy notes (section 3).
"""

from __future__ import annotations

from typing import Final

UNITS: Final = "models/units.conf"
CSV: Final = "rules/units.csv"
ROUTES: Final = "rules/routes.csv"
FIRST: Final = "p, R-SCOPE-1, customer|partner|employee|agent, scope, GET, allow"
EFFECT: Final = "e = some(where (p.eft == allow)) && !some(where (p.eft == deny))"

MODEL_EDITS: Final = [
    (1, EFFECT, f"{EFFECT}\ne2 = !some(where (p.eft == deny))"),
    (1, "[matchers]", "[request_definition2]\nr2 = a\n\n[matchers]"),
    (2, " && meets(r.consent", " \\\n# comment\n&& meets(r.consent"),
    (3, " && meets(r.consent", "\n&& meets(r.consent"),
    (3, "m = meets", "m = true\nm = meets"),
    (5, "consent, eft", "consent, effect"),
    (15, EFFECT, "e = !some(where (p.eft == deny))"),
    (16, "p.eft == allow", "p.eft==allow"),
    (19, "[policy_effect]", "[role_definition]\ng = _, _\n\n[policy_effect]"),
    (22, "[policy_effect]", "[role_definitions]\ng = _, _\n\n[policy_effect]"),
    (25, "meets(r.kind, p.kind)", "globMatch(r.kind, p.kind)"),
    (26, "meets(r.kind, p.kind)", "regexMatch(r.kind, p.kind)"),
    (27, "meets(r.kind, p.kind)", "r.kind in p.kind"),
    (28, "meets(r.kind, p.kind)", '(r.kind == "faq" || meets(r.kind, p.kind))'),
    (36, "meets(r.kind, p.kind)", "eval(p.kind)"),
]
"""Trap, text of the units' model, what stands there instead."""

ROWS: Final = [
    (4, "p, R-SCOPE-1, customer, scope, GET, allow # why", "bad_effect"),
    (4, "p, R-SCOPE-1, customer, scope, GET, Deny", "bad_effect"),
    (4, "p, R-SCOPE-1, customer, scope, GET, reject", "bad_effect"),
    (4, "p, R-SCOPE-1, customer, scope, GET,", "bad_effect"),
    (6, "P, R-SCOPE-1, customer, scope, GET, deny", "unknown_row_type"),
    (6, "p2, R-SCOPE-1, customer, scope, GET, deny", "unknown_row_type"),
    (6, "р, R-SCOPE-1, customer, scope, GET, deny", "unknown_row_type"),
    (8, "p, R-SCOPE-1, customer, scope, allow", "wrong_arity"),
    (8, "p, R-SCOPE-1, customer, scope, GET, allow,", "wrong_arity"),
    (9, "p, R-SCOPE-1, custo mer, scope, GET, allow", "bad_token"),
    (9, "p, R-SCOPE-1, customer\u00a0, scope, GET, allow", "bad_token"),
    (9, "p, R-SCOPE-1, customer\u200b, scope, GET, allow", "control_character"),
    (9, "p, R-SCOPE-1, customer | partner, scope, GET, allow", "bad_token"),
    (10, 'p, R-SCOPE-1, "customer", scope, GET, allow', "bad_token"),
    (10, 'p, R-SCOPE-1, "customer,partner", scope, GET, allow', "wrong_arity"),
    (11, "p, R-SCOPE-1, CN=staff,OU=x, scope, GET, allow", "wrong_arity"),
    (12, "p, R-SCOPE-1, customer, /docs/[a, GET, allow", "bad_token"),
    (12, "p, R-SCOPE-1, customer, /a], GET, allow", "bad_token"),
    (12, ", R-SCOPE-1, customer, scope, GET, allow", "unknown_row_type"),
    (13, "p, R-SCOPE-1, customer, scope, GET, allow\rp, R-X-2, agent", "control_character"),
    (13, "p, R-SCOPE-1, customer, scope, GET, allow\u0085", "control_character"),
    (13, "p,\tR-SCOPE-1, customer, scope, GET, allow", "control_character"),
    (18, "g, employee, admin", "unknown_row_type"),
    (20, "g, employee, admin, domain, 2026", "unknown_row_type"),
    (21, "g2, bob*, admin", "unknown_row_type"),
    (23, "p, R-SCOPE-1, customer, scope*, GET, allow", "bad_token"),
    (27, "p, R-SCOPE-1, customer, sco, GET, allow", "unknown_word"),
    (27, "p, R-SCOPE-1, customer|, scope, GET, allow", "bad_token"),
    (29, "p, 1, R-SCOPE-1, customer, scope, GET, allow", "wrong_arity"),
    (30, f"{FIRST}\np, R-SCOPE-2, agent|customer|partner|employee, scope, GET, allow",
     "duplicate_rule"),
    (30, f"{FIRST}\np, R-SCOPE-1, customer, scope, GET, deny", "duplicate_rule_id"),
    (30, "p, R-SCOPE-1, customer|customer, scope, GET, allow", "duplicate_word"),
    (45, "p, R-SCOPE-1, Customer, scope, GET, allow", "unknown_word"),
    (45, "p, R-SCOPE-1, customer, scope, get, allow", "unknown_word"),
    (46, "p, R-SCOPE-1, customr, scope, GET, deny", "unknown_word"),
    (46, "p, R-SCOPE-1, customer, scope, POST, allow", "dead_word"),
    (46, "p, R-SCOPE-1, anonymous, scope, GET, allow", "dead_word"),
    (46, f"{FIRST}\np, R-SCOPE-X, all, scope, GET, deny", "dead_rule"),
    (46, "p, r-scope-1, customer, scope, GET, allow", "bad_rule_id"),
    (46, "p, R-SCOPE-1, all, scope, GET, allow", "all_in_allow"),
]  # fmt: skip
"""Trap, what stands instead of the first route rule, the code of the fault."""

PATHS: Final = [
    "/api/*/public", "/docs*", "/docs/../admin", "/docs/**", "v1/x", "/v1//x", "/v1/:id", "/v1/",
    "/v1/{rest...}/x", "/v1/{a}/{a}", "/v1/{A}", "/v1/x%2fy", "/v1/a b", "/v1/./x"
]  # fmt: skip
"""Path patterns of other languages (trap 23), instead of ``/v1/scope`` in the routes."""
