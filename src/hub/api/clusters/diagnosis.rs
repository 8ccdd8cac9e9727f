//! A diagnosis on demand: the agent is asked through its line; without a line it is said what was known last.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use time::OffsetDateTime;

use super::super::Caller;
use super::super::problem::Problem;
use super::{find, view};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::wire::api::{Component, Diagnosis, DiagnosisAnswer, Order, Verdict};

/// Certificates, Leases and signatures bear this much.
const SKEW: time::Duration = time::Duration::seconds(15);

pub(super) async fn ask(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Diagnosis>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.diagnose")
        .await?;
    let cluster = find(&hub, &name).await?;
    let note = if cluster.joined_at.is_none() {
        "the cluster has not joined yet"
    } else if hub.orders.listens(&cluster.name) {
        let id = clock::id();
        let asked = hub.diagnoses.ask(&cluster.name, id);
        if let Some(id) = asked.order.clone() {
            hub.orders.send(&cluster.name, Order::Diagnose { id });
        }
        if let Some(answer) = asked.wait().await {
            return Ok(Json(live(&answer, clock::now())));
        }
        "the agent did not answer in time; one that is older than this hub does not know the question"
    } else {
        "the agent has no line to this hub now"
    };
    let seen = view::one(&hub, cluster).await?.last_seen;
    Ok(Json(Diagnosis {
        live: false,
        at: seen.unwrap_or_default(),
        note: note.to_owned(),
        components: Vec::new(),
    }))
}

fn live(answer: &DiagnosisAnswer, now: OffsetDateTime) -> Diagnosis {
    let mut components = answer.components.clone();
    components.push(clocks(&answer.at, now));
    Diagnosis {
        live: true,
        at: clock::rfc3339(now),
        note: String::new(),
        components,
    }
}

/// The agent's clock beside the hub's; the way of the answer is in it.
fn clocks(at: &str, now: OffsetDateTime) -> Component {
    let skew = clock::parse_rfc3339(at).map(|at| now - at);
    let (works, found) = match skew {
        None => (Verdict::Unknown, "the agent named no time".to_owned()),
        Some(skew) => {
            let (text, length) = if skew.is_negative() {
                ("ahead of", -skew)
            } else {
                ("behind", skew)
            };
            let good = length <= SKEW;
            let seconds = length.as_seconds_f64();
            let works = if good { Verdict::Yes } else { Verdict::No };
            (
                works,
                format!("the agent's is {seconds:.1} s {text} the hub's"),
            )
        }
    };
    let wrong = works == Verdict::No;
    let fix = "set the clocks of the cluster's nodes and of the hub (NTP)";
    Component {
        name: "clock".to_owned(),
        exists: Verdict::None,
        works,
        fresh: Verdict::None,
        found,
        fix: if wrong { fix.to_owned() } else { String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_be_off_by_seconds_only() {
        let now = clock::parse_rfc3339("2026-01-01T00:01:00Z").unwrap();
        for (at, works, found) in [
            (
                "2026-01-01T00:00:59.9Z",
                Verdict::Yes,
                "the agent's is 0.1 s behind the hub's",
            ),
            (
                "2026-01-01T00:01:16Z",
                Verdict::No,
                "the agent's is 16.0 s ahead of the hub's",
            ),
            (
                "2026-01-01T00:00:10Z",
                Verdict::No,
                "the agent's is 50.0 s behind the hub's",
            ),
            ("soon", Verdict::Unknown, "the agent named no time"),
        ] {
            let row = clocks(at, now);
            assert_eq!((row.works, row.found.as_str()), (works, found));
            assert_eq!(row.fix.is_empty(), works != Verdict::No);
        }
    }
}
