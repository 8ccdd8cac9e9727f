//! What can come of a call, and what to do then.

use reqwest::StatusCode;

use super::Cause;
use crate::wire::api::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("'{url}' is not a hub address: {reason}")]
    Address { url: String, reason: String },
    #[error("read the CA certificate: {0}")]
    Ca(String),
    #[error("set up TLS: {0}")]
    Tls(String),
    #[error("{operation}: {cause}")]
    Unreachable {
        operation: String,
        hub: String,
        cause: Cause,
    },
    #[error("{operation}: {}", problem.detail)]
    Refused {
        operation: String,
        problem: Box<Problem>,
    },
    #[error("{operation}: {hub} does not answer like a Linesman hub: {found}")]
    Answer {
        operation: String,
        hub: String,
        found: String,
    },
    #[error("{operation}: HTTP {status} from {hub}, which is not the hub's own answer: {body}")]
    Gateway {
        operation: String,
        hub: String,
        status: StatusCode,
        body: String,
    },
    /// The token could not be renewed; the cause says what to do.
    #[error("renew the session")]
    Session(#[source] anyhow::Error),
}

/// The kind of a problem that was read out of a Kubernetes `Status`.
pub(super) const OF_STATUS: &str = "urn:linesman:problem:kubernetes-status";
/// Under this name it has the rule by which a hop of the line refused the request.
pub(super) const RULE: &str = "rule";

impl Error {
    /// What a person does next.
    pub fn next(&self) -> String {
        match self {
            Self::Unreachable { hub, cause, .. } => cause.next(hub),
            Self::Refused { problem, .. } if is_of_the_cluster(problem) => {
                "run: linesman doctor --cluster NAME".to_owned()
            }
            Self::Refused { .. }
            | Self::Address { .. }
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Answer { .. }
            | Self::Gateway { .. }
            | Self::Session(_) => self.mend(),
        }
    }

    /// The same for whoever runs `linesman doctor` already.
    pub fn mend(&self) -> String {
        match self {
            Self::Address { .. } => "give it as https://HOST[:PORT]".to_owned(),
            Self::Ca(_) => {
                "give the PEM file that the hub printed at its first start, <data>/ca.crt"
                    .to_owned()
            }
            Self::Tls(_) => {
                "install the package ca-certificates, or give the hub's CA with --ca FILE"
                    .to_owned()
            }
            Self::Unreachable { hub, cause, .. } => cause.mend(hub),
            Self::Refused { problem, .. } if !problem.next.is_empty() => problem.next.clone(),
            Self::Refused { problem, .. } if is_of_the_cluster(problem) => {
                "the cluster's API server says so itself: see its log, and the cluster's RBAC"
                    .to_owned()
            }
            Self::Refused { problem, .. } => {
                format!("look for request {} in the hub's log", problem.request_id)
            }
            Self::Answer { hub, .. } => {
                format!("check that {hub} is the hub and not another server")
            }
            Self::Gateway { hub, .. } => {
                format!("look at the proxy or load balancer before {hub}, then at the hub itself")
            }
            Self::Session(_) => "run: linesman login".to_owned(),
        }
    }

    /// The rule by which a hop of the line refused the request; `None` = none of them did.
    pub fn rule(&self) -> Option<&str> {
        let Self::Refused { problem, .. } = self else {
            return None;
        };
        problem.more.get(RULE).map(String::as_str)
    }

    /// What the hub says is wrong, as programs tell it apart; `None` = it said nothing.
    pub fn slug(&self) -> Option<&str> {
        let Self::Refused { problem, .. } = self else {
            return None;
        };
        problem.kind.strip_prefix("urn:linesman:problem:")
    }

    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { problem, .. } => StatusCode::from_u16(problem.status).ok(),
            Self::Gateway { status, .. } => Some(*status),
            Self::Address { .. }
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Unreachable { .. }
            | Self::Answer { .. }
            | Self::Session(_) => None,
        }
    }

    /// The same call may succeed a moment later: nobody judged it yet.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { cause, .. } => cause.is_passing(),
            Self::Refused { .. } | Self::Gateway { .. } => self.status().is_some_and(is_busy),
            Self::Address { .. }
            | Self::Ca(_)
            | Self::Tls(_)
            | Self::Answer { .. }
            | Self::Session(_) => false,
        }
    }
}

/// A `Status`' message in two: what is wrong, and what to do. `what` is wrong by its cause, and may hold the mark between the two itself.
pub(super) fn parted<'a>(message: &'a str, what: &str) -> (&'a str, &'a str) {
    let told = message.find(what).map_or(0, |at| at + what.len());
    let (before, behind) = message.split_at(told);
    match behind.split_once("; ") {
        Some((rest, next)) => (&message[..before.len() + rest.len()], next),
        None => (message, ""),
    }
}

/// Whether an API server answered through the line, which names no next action.
fn is_of_the_cluster(problem: &Problem) -> bool {
    problem.kind == OF_STATUS && problem.next.is_empty()
}

/// Whether it says that a later try may be served.
fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
