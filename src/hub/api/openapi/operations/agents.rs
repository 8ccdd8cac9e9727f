//! What agents call: they join, are told what to do, and report.

use super::Caller::{Agent, Anyone};
use super::{Operation, operation};

pub(super) const ALL: &[Operation] = &[
    operation(
        ("post", "/v1/join"),
        Agent,
        "Redeem a join token and bind the cluster's keys",
        ("JoinRequest", "Assignment"),
    ),
    operation(
        ("post", "/v1/recover"),
        Agent,
        "A new identity for a cluster that lost its own, on the word of its deploy key",
        ("RecoverRequest", "Assignment"),
    ),
    operation(
        ("get", "/v1/line"),
        Anyone,
        "Upgrade to the line (WebSocket, subprotocol linesman.line.1)",
        ("", ""),
    ),
    operation(
        ("get", "/v1/clusters/{name}/assignment"),
        Agent,
        "What a cluster is told",
        ("", "Assignment"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/reports"),
        Agent,
        "Steps, facts, conditions and heals",
        ("Report", "ReportAck"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/deploy-keys"),
        Agent,
        "Register a deploy key, read-only",
        ("DeployKeyRequest", "DeployKeyStatus"),
    ),
    operation(
        ("post", "/v1/clusters/{name}/diagnoses"),
        Agent,
        "The answer to the order 'diagnose'",
        ("DiagnosisAnswer", ""),
    ),
    operation(
        ("post", "/v1/clusters/{name}/identity"),
        Agent,
        "A new identity key, signed by it and the one before",
        ("IdentityRequest", ""),
    ),
    operation(
        ("get", "/v1/clusters/{name}/orders"),
        Agent,
        "The hub's orders, a JSON object a line",
        ("", "Order"),
    ),
    operation(
        ("get", "/v1/bundles/{digest}"),
        Agent,
        "A bundle's content (zstd)",
        ("", ""),
    ),
];
