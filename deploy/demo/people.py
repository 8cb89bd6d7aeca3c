"""The people, agents and machines of the demo company: who they are, nothing of what they may.

What each of them may read follows from the policy. The words here are the identity provider's
own (``staff-all``, ``responder``); ``policy/rules/issuers.yaml`` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Realm(StrEnum):
    """One issuer each, with a key of its own: none can speak for another."""

    STAFF = "staff"
    PARTNERS = "partners"
    CUSTOMERS = "customers"
    AGENTS = "agents"
    SERVICES = "services"


@dataclass(frozen=True, slots=True)
class Client:
    """One fixed client of the identity provider. ``claims`` go into its tokens as they are."""

    name: str
    realm: Realm
    claims: Mapping[str, str | list[str]]
    about: str


CLIENTS: Final = (
    Client(
        "customer",
        Realm.CUSTOMERS,
        {"groups": ["customers"], "tenant": "acme", "jurisdictions": ["eu"]},
        "bookkeeper of the customer Acme, in the European Union",
    ),
    Client(
        "globex-customer",
        Realm.CUSTOMERS,
        {"groups": ["customers"], "tenant": "globex", "jurisdictions": ["vn"]},
        "dispatcher of the customer Globex, in Vietnam",
    ),
    Client(
        "partner",
        Realm.PARTNERS,
        {"groups": ["partners"], "tenant": [], "jurisdictions": ["eu", "vn"]},
        "developer at an integration partner",
    ),
    Client(
        "employee",
        Realm.STAFF,
        {"groups": ["staff-all"], "tenants": ["acme", "globex"], "jurisdictions": ["eu", "vn"]},
        "colleague at the support desk",
    ),
    Client(
        "risk-officer",
        Realm.STAFF,
        {
            "groups": ["staff-all"],
            "roles": ["risk-officer"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "colleague who may give consents",
    ),
    Client(
        "policy-reviewer",
        Realm.STAFF,
        {
            "groups": ["staff-all"],
            "roles": ["policy-reviewer"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "colleague who reviews changes of policy and may ask what they touch",
    ),
    Client(
        "knowledge-owner",
        Realm.STAFF,
        {
            "groups": ["staff-all"],
            "roles": ["knowledge-owner"],
            "knowledge": ["documents", "handbook"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "colleague who owns the threads, and may approve labels that open units inside the house",
    ),
    Client(
        "contractor",
        Realm.STAFF,
        {
            "groups": ["staff-all", "contractors"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "on the staff's issuer, but denied by a row of the policy: has no audience",
    ),
    Client(
        "agent-assistant",
        Realm.AGENTS,
        {
            "groups": ["agents"],
            "roles": ["assistant"],
            "tasks": ["answer", "summarise"],
            "tenants": [],
            "jurisdictions": ["eu", "vn"],
        },
        "answers questions from what is published",
    ),
    Client(
        "agent-analyst",
        Realm.AGENTS,
        {
            "groups": ["agents"],
            "roles": ["analyst"],
            "tasks": ["answer"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "works on internal material and code",
    ),
    Client(
        "agent-incident",
        Realm.AGENTS,
        {
            "groups": ["agents"],
            "roles": ["responder"],
            "tasks": ["incident_response"],
            "tenants": ["acme", "globex"],
            "jurisdictions": ["eu", "vn"],
        },
        "helps with incidents: runbooks, code and raw incident records",
    ),
    Client(
        "agent-auditor",
        Realm.AGENTS,
        {
            "groups": ["agents"],
            "roles": ["auditor"],
            "tasks": ["audit"],
            "tenants": [],
            "jurisdictions": ["eu", "vn"],
        },
        "compares what was superseded with what replaced it",
    ),
    Client("policy-ci", Realm.SERVICES, {"roles": ["policy-ci"]}, "pipeline that checks policy"),
    Client("portal-customer", Realm.SERVICES, {}, "backend of the customers' portal"),
    Client("portal-partner", Realm.SERVICES, {}, "backend of the partners' portal"),
    Client("portal-employee", Realm.SERVICES, {}, "backend of the employees' portal"),
)


def client(name: str) -> Client:
    """The client of that name. Raises ``KeyError``."""
    return {one.name: one for one in CLIENTS}[name]
