"""Why a caller was refused, as one word of a closed list: for operators, the same in each log.

Laws
    * A word is ours, never a caller's: nothing that stood in a token, a header or a path is one.
    * No answer bears one. A caller whose token is unknown, over or revoked is told the same.
"""

from __future__ import annotations

from enum import StrEnum


class Why(StrEnum):
    """What was wrong with a credential, a delegation, a wish or a place in the policy."""

    NO_CREDENTIAL = "no_credential"
    MALFORMED_CREDENTIAL = "malformed_credential"
    MALFORMED_TOKEN = "malformed_token"  # noqa: S105 - a word, no secret
    UNKNOWN_ISSUER = "unknown_issuer"
    WRONG_ALGORITHM = "wrong_algorithm"
    UNKNOWN_KEY = "unknown_key"
    ISSUER_KEYS_UNAVAILABLE = "issuer_keys_unavailable"
    BAD_SIGNATURE = "bad_signature"
    NOT_AN_ACCESS_TOKEN = "not_an_access_token"  # noqa: S105 - a word, no secret
    BOUND_TOKEN = "bound_token"  # noqa: S105 - a word, no secret
    WRONG_TOKEN_AUDIENCE = "wrong_token_audience"  # noqa: S105 - a word, no secret
    BAD_CLAIM = "bad_claim"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    TOO_OLD = "too_old"
    REVOKED = "revoked"
    DELEGATION_REQUIRED = "delegation_required"
    DELEGATION_ALONE = "delegation_alone"
    DELEGATION_ELSEWHERE = "delegation_elsewhere"
    DELEGATION_EXPIRED = "delegation_expired"
    BAD_DELEGATION = "bad_delegation"
    FOREIGN_DELEGATION = "foreign_delegation"
    UNTRUSTED_PROXY = "untrusted_proxy"
    WRONG_ORIGIN = "wrong_origin"
    UNKNOWN_PURPOSE = "unknown_purpose"
    TASK_SCOPE_REFUSED = "task_scope_refused"
    TASK_SCOPE_REQUIRED = "task_scope_required"
    NO_TASK_SCOPE = "no_task_scope"
    NO_TOOL = "no_tool"
    AUDIENCE_REFUSED = "audience_refused"
    ADMIN_DISABLED = "admin_disabled"
    FOREIGN_SOURCE = "foreign_source"
    NO_AUDIENCE = "no_audience"
    AMBIGUOUS_AUDIENCE = "ambiguous_audience"
    NO_RULE = "no_rule"
    DENIED_BY_RULE = "denied_by_rule"
