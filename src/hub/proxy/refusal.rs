//! What a user is told where the hub or the line fails, and which failures are the line's.

use http::StatusCode;
use tracing::warn;

use super::exchange::Failed;
use super::rewrite::Outgoing;
use crate::assertion::AssertionError;
use crate::clock;
use crate::hub::auth::AuthError;
use crate::hub::chain_of;
use crate::hub::store::StoreError;
use crate::hub::tunnels::Standing;
use crate::kubeapi::message::Violation;
use crate::kubeapi::status::{Hop, Refusal};
use crate::tunnel::LineError;
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

pub(super) fn unauthenticated(error: &AuthError) -> Refusal {
    match error {
        AuthError::Store(error) => store_away(error),
        _ => Refusal::new(
            Hop::Hub,
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            error.to_string(),
        )
        .next("run 'linesman login'"),
    }
}

pub(super) fn store_away(error: &StoreError) -> Refusal {
    if let StoreError::Away { since, .. } = error {
        return no_store(Some(since));
    }
    warn!(error = chain_of(error), "look up who asks for what");
    no_store(None)
}

/// `away`: since when, where the log has said it.
pub(super) fn store_silent(away: Option<&str>) -> Refusal {
    if away.is_none() {
        warn!("look up who asks for what: no answer in time");
    }
    no_store(away)
}

fn no_store(away: Option<&str>) -> Refusal {
    let what = match away {
        Some(since) => format!("the hub's database is away since {since}"),
        None => "the hub's store does not answer".to_owned(),
    };
    Refusal::new(Hop::Hub, StatusCode::SERVICE_UNAVAILABLE, "Store", what)
        .next("repeat it; if it stays, look at the hub's log")
        .retry_after(1)
}

/// `why` is what the record says, such as `access ended: grant 0197… expired`.
pub(super) fn access_ended(why: &str) -> Refusal {
    Refusal::new(Hop::Hub, StatusCode::FORBIDDEN, "AccessEnded", why)
        .next("look whether it took effect; run 'linesman whoami' to see what you still have")
}

/// The same for an answer or a session that ran.
pub(super) fn cut_off(why: &str) -> Refusal {
    Refusal::new(Hop::Hub, StatusCode::FORBIDDEN, "AccessEnded", why)
        .next("see 'linesman grant list --all' and 'linesman whoami', or ask a hub admin")
}

/// For a watch that ran.
pub(super) fn line_gone() -> Refusal {
    let what = "the line was lost while the watch ran";
    Refusal::new(Hop::Line, StatusCode::SERVICE_UNAVAILABLE, "LineLost", what).next("ask again")
}

/// `place` is where the hub keeps its records.
pub(super) fn unrecorded(place: &str) -> Refusal {
    Refusal::new(
        Hop::Hub,
        StatusCode::SERVICE_UNAVAILABLE,
        "Audit",
        "the request could not be put on record",
    )
    .next(format!(
        "repeat it; if it stays, look at the hub's {place} and log"
    ))
    .retry_after(1)
}

/// Why a request finds no line that takes it.
pub(super) fn offline(cluster: &ClusterName, standing: &Standing) -> Refusal {
    let (what, is_up) = match standing {
        Standing::Up => (
            format!("the line of cluster {cluster} has changed just now"),
            true,
        ),
        Standing::Draining => (
            format!("the line of cluster {cluster} drains, and the next one is not there yet"),
            true,
        ),
        Standing::Ended { at, cause } => {
            let at = clock::rfc3339(*at);
            let what = format!("cluster {cluster} is offline since {at}: {cause}");
            (what, false)
        }
        Standing::Elsewhere { line: _, heard } | Standing::Silent { heard } => {
            let at = clock::rfc3339(*heard);
            let what = format!("cluster {cluster} is offline, last heard at {at}");
            (what, false)
        }
        Standing::Never => {
            let what = format!("cluster {cluster} is offline, it has not connected yet");
            (what, false)
        }
    };
    let next = if is_up {
        "repeat it in some seconds".to_owned()
    } else {
        format!(
            "see 'linesman cluster show {cluster}', and in the cluster 'kubectl -n linesman logs deploy/linesman-agent'"
        )
    };
    Refusal::new(Hop::Line, StatusCode::SERVICE_UNAVAILABLE, "Offline", what).next(next)
}

/// As many requests wait for the line as may. It is expected, and nothing was sent: the client may come again.
pub(super) fn no_place(cluster: &ClusterName) -> Refusal {
    let what = format!(
        "the line of cluster {cluster} is not there yet, and too many requests wait already"
    );
    let code = StatusCode::SERVICE_UNAVAILABLE;
    Refusal::new(Hop::Line, code, "TooManyWait", what)
        .next("repeat it in some seconds")
        .retry_after(1)
}

/// Whether the line went away rather than refused.
pub(super) fn moved(code: Code) -> bool {
    matches!(
        code,
        Code::LineLost
            | Code::Draining
            | Code::Superseded
            | Code::Ids
            | Code::Cancelled
            | Code::None
    )
}

/// Whether the request went down with its line, which `holds` no more; a stream alone can break, too.
pub(super) fn lost(failed: &Failed, holds: bool) -> bool {
    match failed {
        Failed::Timeout(_) => false,
        Failed::Stream(error) => match line_error(error).map(|error| error.code) {
            Some(Code::LineLost) => true,
            Some(code) => !holds && moved(code),
            None => !holds,
        },
    }
}

/// Whether the request had not begun to leave when its line went: nobody has seen anything of it.
pub(super) fn unsent(failed: &Failed) -> bool {
    match failed {
        Failed::Timeout(_) => false,
        Failed::Stream(error) => line_error(error).is_some_and(|error| error.unsent),
    }
}

/// What the line says below hyper's error.
fn line_error(error: &hyper::Error) -> Option<LineError> {
    below(error)
}

/// Whether an answer stopped because its line was lost.
pub(super) fn by_line(error: &hyper::Error) -> bool {
    line_error(error).is_some_and(|error| error.code == Code::LineLost)
}

/// For the record of an answer that stopped in its middle.
pub(super) fn broken(error: &hyper::Error) -> &'static str {
    broken_by(line_error(error).as_ref())
}

/// The same of a session; None = it was the user who left.
pub(super) fn session_broken(error: &std::io::Error) -> Option<&'static str> {
    let line = error.get_ref()?.downcast_ref::<LineError>()?;
    Some(broken_by(Some(line)))
}

fn broken_by(error: Option<&LineError>) -> &'static str {
    match error.map(|error| error.code) {
        Some(Code::LineLost) => "the line was lost",
        Some(Code::OverBudget) => "nobody read it, and it took the line's memory",
        _ => "the cluster's side broke it off",
    }
}

/// What an error of the connections to user or agent was made of.
fn below<T: std::error::Error + Clone + 'static>(error: &hyper::Error) -> Option<T> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<T>())
                .cloned();
        }
        next = error.source();
    }
    None
}

/// Who asks cannot be told to the cluster, whoever tries it and how often.
pub(super) fn not_asserted(error: &AssertionError, namespaces: usize) -> Refusal {
    Refusal::new(
        Hop::Hub,
        StatusCode::FORBIDDEN,
        "TooManyNamespaces",
        format!(
            "the {namespaces} namespaces of your grants are more than a request can name: {error}"
        ),
    )
    .next("ask a hub admin for a grant of fewer namespaces, or of all")
}

/// `owner` is the replica that has the line, where that is another: of the two lines on the way there either may be full.
pub(super) fn not_opened(error: &LineError, owner: Option<&str>) -> Refusal {
    let busy = StatusCode::TOO_MANY_REQUESTS;
    let refusal = match error.code {
        Code::OverBudget => Refusal::new(
            Hop::Hub,
            busy,
            "OverBudget",
            format!(
                "answers that nobody reads take the memory that the hub has for them: 32 MiB of the cluster's line, {}or a \
                 quarter of the hub's memory limit",
                owner.map_or_else(String::new, |owner| {
                    format!("or of the line to the hub's replica {owner}, ")
                })
            ),
        )
        .next("end what nobody reads; if it stays, raise the hub's memory limit"),
        Code::Limit | Code::Busy => Refusal::new(
            Hop::Hub,
            busy,
            "TooManyRequests",
            format!("the cluster's line takes no more requests: {error}"),
        )
        .next("end watches and sessions that are not needed"),
        _ => Refusal::new(
            Hop::Line,
            StatusCode::SERVICE_UNAVAILABLE,
            "NotSent",
            format!("the line takes no request now: {error}"),
        )
        .next("repeat it in some seconds"),
    };
    refusal.retry_after(1)
}

fn is_room(code: Code) -> bool {
    matches!(code, Code::Limit | Code::OverBudget | Code::Busy)
}

/// The agent had no room for the stream, or for what lay unread on it.
fn no_room(error: &LineError, outgoing: &Outgoing) -> Refusal {
    let refusal = |reason, what: &str| {
        let code = StatusCode::TOO_MANY_REQUESTS;
        Refusal::new(Hop::Agent, code, reason, what)
    };
    if error.code != Code::OverBudget {
        // An agent says so before it looks at the request.
        return refusal("Busy", "the agent serves as many requests as it can")
            .next("end watches and sessions that are not needed")
            .retry_after(1);
    }
    let refusal = refusal(
        "OverBudget",
        "input that is not taken in takes the memory that the agent has for it: 24 MiB of the line, or a quarter of the \
         agent's memory limit",
    );
    if outgoing.repeatable() {
        return refusal
            .next("repeat it; if it stays, raise the memory limit of deployment linesman-agent")
            .retry_after(1);
    }
    // A stream may be given up in its middle, too.
    refusal.next("look whether it took effect before repeating it")
}

/// Bytes may have reached the cluster, so whoever asked for a change is told to look before repeating it, also where the stream's OPEN
/// had not left. `owner` is the replica that has the line, where that is another.
pub(super) fn no_head(failed: &Failed, outgoing: &Outgoing, owner: Option<&str>) -> Refusal {
    let by = owner.map_or_else(String::new, |owner| {
        format!(" by the hub's replica {owner}")
    });
    let careful = if outgoing.repeatable() {
        "repeat it"
    } else {
        "look whether it took effect before repeating it"
    };
    match failed {
        Failed::Timeout(limit) => Refusal::new(
            Hop::Line,
            StatusCode::GATEWAY_TIMEOUT,
            "NoAnswer",
            format!("no answer within {} s{by}", limit.as_secs()),
        )
        .next(careful),
        Failed::Stream(error) => {
            if let Some(violation) = below::<Violation>(error) {
                // In the middle of the user's own body.
                return violation.refusal();
            }
            let line = line_error(error);
            if let Some(error) = line.as_ref().filter(|error| error.unsent) {
                return not_opened(error, owner);
            }
            if let Some(error) = line.as_ref().filter(|error| is_room(error.code)) {
                return no_room(error, outgoing);
            }
            let why = line
                .as_ref()
                .map_or_else(|| chain_of(error), ToString::to_string);
            let what = match line.as_ref().map(|line| line.code) {
                Some(Code::LineLost) => "the line was lost",
                _ => "the stream broke",
            };
            Refusal::new(
                Hop::Line,
                StatusCode::BAD_GATEWAY,
                "LineLost",
                format!("{what}{by} before an answer, outcome unknown: {why}"),
            )
            .next(careful)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_recorded_sends_to_where_the_records_are() {
        let next = ["disk", "database"].map(|place| unrecorded(place).next);
        let sends = |place| format!("repeat it; if it stays, look at the hub's {place} and log");
        assert_eq!(next, [sends("disk"), sends("database")]);
    }

    #[test]
    fn where_either_of_two_lines_may_be_full_both_are_named() {
        let full = LineError::new(Code::OverBudget, "unread input takes the line's memory");
        let what = |owner| not_opened(&full, owner).what;
        let (begins, ends) = (
            "answers that nobody reads take the memory that the hub has for them: 32 MiB of the cluster's line, ",
            "or a quarter of the hub's memory limit",
        );
        assert_eq!(what(None), format!("{begins}{ends}"));
        let other = "or of the line to the hub's replica hub-1:9443, ";
        assert_eq!(what(Some("hub-1:9443")), format!("{begins}{other}{ends}"));
    }
}
