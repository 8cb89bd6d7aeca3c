"""One believable thread of every kind of link, and a few beside it."""

from __future__ import annotations

from tests.retrieval.world import (
    EMPLOYEE,
    PARTNER,
    PUBLIC,
    SECRET,
    Artifact,
    Edge,
    Link,
    Thread,
    Unit,
    World,
)

REFUNDS = World(
    threads=(
        Thread(
            "thread:refunds",
            "Refunds and returns",
            "How money goes back to a buyer, within which limits, and who approves it",
            aliases=("money back", "reimbursement"),
            purpose="Answer what can be sent back and when the money arrives",
        ),
    ),
    units=(
        Unit("law:refund-act", "Refund act", "A buyer may return goods within 14 days.",
             PUBLIC.of("law"), "law", 400),
        Unit("policy:refunds", "Refund policy", "Refunds are paid within five days of return.",
             PUBLIC.of("policy"), "law", 30),
        Unit("faq:refund-time", "When does my money arrive", "Five days after the return.",
             PUBLIC, "other", 10),
        Unit("design:refund-flow", "Refund flow", "The refund service asks the ledger first.",
             PUBLIC.of("design"), "design", 60),
        Unit("doc:refund-api", "Refund API", "POST /refunds starts a refund for partners.",
             PARTNER.of("api_doc"), "code", 20),
        Unit("sop:refund-desk", "Refund desk", "Clerks approve refunds up to 500 alone.",
             EMPLOYEE.of("sop"), "law", 5),
        Unit("report:refund-audit", "Refund audit", "The audit found two late refunds.",
             PUBLIC.of("report"), "report", 3),
        Unit("report:old-audit", "Old refund audit", "The year before nothing was found.",
             PUBLIC.of("report"), "report", 380),
        Unit("faq:shipping-cost", "Cost of shipping", "Shipping back is free of charge.",
             PUBLIC, "other", 40),
        Unit("secret:fraud-rules", "Fraud rules", "Refunds above 900 are held for fraud checks.",
             SECRET.of("policy"), "law", 1),
    ),
    links=(
        Link("thread:refunds", "faq:refund-time"),
        Link("thread:refunds", "policy:refunds"),
        Link("thread:refunds", "law:refund-act"),
        Link("thread:refunds", "design:refund-flow"),
        Link("thread:refunds", "doc:refund-api"),
        Link("thread:refunds", "sop:refund-desk"),
        Link("thread:refunds", "secret:fraud-rules"),
        Link("thread:refunds", "faq:shipping-cost", "supporting", 0.3),
        Link("thread:refunds", "report:refund-audit", "report"),
        Link("thread:refunds", "report:old-audit", "report", status="needs_human"),
    ),
    edges=(
        Edge("design:refund-flow", "policy:refunds"),
        Edge("doc:refund-api", "design:refund-flow", "documents", 0.9),
        Edge("secret:fraud-rules", "design:refund-flow", "constrains"),
    ),
    artifacts=(
        Artifact("thread:refunds", "Load test of the refund flow", "test", PUBLIC.of("test")),
        Artifact("thread:refunds", "Refund audit", "report", PUBLIC.of("report")),
        Artifact("thread:refunds", "Partner guide", "other", PARTNER.of("guide")),
        Artifact("thread:refunds", "Fraud post-mortem", "incident", SECRET.of("report")),
    ),
)  # fmt: skip

ACCOUNTS = World(
    threads=(
        Thread("thread:accounts", "Customer accounts", "Opening, closing and locking an account"),
        Thread("thread:passwords", "Password reset", "What to do when an account is locked"),
        Thread("thread:fraud", "Fraud investigation", "How suspected fraud is handled",
               label=SECRET),
        Thread("thread:empty", "Holiday calendar", "Days on which nobody works"),
    ),
    units=(
        Unit("faq:open-account", "Open an account", "Give an address and a name.", PUBLIC),
        Unit("faq:reset", "Reset a password", "Follow the link in the letter.", PUBLIC),
        Unit("sop:fraud", "Fraud handling", "Call the investigators.", SECRET.of("sop"), "law"),
        Unit("sop:calendar", "Calendar", "Offices close at Easter.", SECRET.of("sop"), "law"),
    ),
    links=(
        Link("thread:accounts", "faq:open-account"),
        Link("thread:passwords", "faq:reset"),
        Link("thread:fraud", "sop:fraud"),
        Link("thread:fraud", "faq:open-account"),
        Link("thread:refunds", "faq:open-account", status="wrong_link"),
        Link("thread:empty", "sop:calendar"),
    ),
)  # fmt: skip

SAMPLE = REFUNDS + ACCOUNTS
