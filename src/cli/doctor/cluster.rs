//! Checks of one cluster: its line, its conditions, and what its agent finds when it is asked.

use super::tried;
use crate::cli::output::{counted, status};
use crate::client::{self, Client};
use crate::hub::access::NO_GRANT;
use crate::wire::api::{Check, Component, Diagnosis, ToldCluster, ToldCondition};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status, Weight, weights};

mod advice;

use advice::fix;

/// What the hub knows, and what the cluster's agent finds when it is asked now.
pub(super) async fn look(client: &Client, name: &ClusterName) -> (Vec<Check>, Vec<Component>) {
    let view = match client.cluster(name).await {
        Ok(view) => view,
        Err(e) => {
            let check = tried("record", Err::<(), _>(e), |()| String::new());
            return (vec![check], Vec::new());
        }
    };
    let mut checks = conditions(&view);
    if view.line.up {
        checks.push(api(client.cluster_version(name).await));
    }
    match client.diagnosis(name).await {
        Ok(found) if found.live => {
            let text = format!(
                "{}, seen at {}",
                counted(found.components.len(), "component"),
                found.at
            );
            checks.push(Check {
                name: "diagnosis".to_owned(),
                ok: true,
                found: text,
                fix: String::new(),
            });
            (checks, found.components)
        }
        Ok(found) => {
            for check in checks.iter_mut().filter(|c| c.name != "line") {
                check.found = format!("last known: {}", check.found);
            }
            checks.push(away(&found));
            (checks, Vec::new())
        }
        Err(e) => {
            checks.push(tried("diagnosis", Err::<(), _>(e), |()| String::new()));
            (checks, Vec::new())
        }
    }
}

/// The API server, asked through the line. That nobody gave this user a grant says nothing of the cluster.
fn api(version: Result<serde_json::Value, client::Error>) -> Check {
    if let Some(why) = version.as_ref().err().and_then(ungranted) {
        return Check {
            name: "api".to_owned(),
            ok: true,
            found: format!("skipped: {why}; an admin gives one: linesman grant add --help"),
            fix: String::new(),
        };
    }
    tried("api", version, |v| {
        format!(
            "Kubernetes {} answers through the line",
            v["gitVersion"].as_str().unwrap_or("of unknown version")
        )
    })
}

/// The hub's word that no grant lets this user ask.
fn ungranted(error: &client::Error) -> Option<&str> {
    let client::Error::Refused { problem, .. } = error else {
        return None;
    };
    let by_grants = problem.hop == "hub" && error.rule() == Some(NO_GRANT);
    let detail = problem.detail.as_str();
    by_grants.then(|| detail.strip_prefix("hub: ").unwrap_or(detail))
}

fn away(found: &Diagnosis) -> Check {
    let seen = match found.at.as_str() {
        "" => "never seen".to_owned(),
        at => format!("the above is what was known at {at}"),
    };
    Check {
        name: "diagnosis".to_owned(),
        ok: false,
        found: format!("not live: {}; {seen}", found.note),
        fix: LINE_FIX.to_owned(),
    }
}

/// The line and the conditions of a cluster as checks.
fn conditions(view: &ToldCluster) -> Vec<Check> {
    // Of a cluster out of reach nothing else is known.
    let known = |c: &ToldCondition| view.line.up || c.status != Status::Unknown;
    let said = view.conditions.iter().map(ToldCondition::known);
    let weighed = view.conditions.iter().zip(weights(said));
    let others = weighed.filter(|(c, _)| c.kind != ConditionType::LineUp && known(c));
    let mut checks = vec![line(view)];
    checks.extend(others.filter_map(|one| condition(one, view)));
    checks
}

const LINE_FIX: &str = "see in the cluster: kubectl -n linesman get pods; kubectl -n linesman logs deploy/linesman-agent";

fn line(view: &ToldCluster) -> Check {
    let says = view
        .conditions
        .iter()
        .find(|c| c.kind == ConditionType::LineUp);
    let says = says.map(|c| c.message.as_str()).unwrap_or_default();
    let seen = view.last_seen.as_deref().unwrap_or("never");
    let state = if view.line.up {
        "up".to_owned()
    } else {
        format!("down, last seen {seen}")
    };
    let between = if view.line.up { ", " } else { "; " };
    Check {
        name: "line".to_owned(),
        ok: view.line.up,
        found: if says.is_empty() {
            state
        } else {
            state + between + says
        },
        fix: LINE_FIX.to_owned(),
    }
}

/// None = of a kind of which only a later build knows whether it is bad when it holds.
fn condition(
    (condition, weight): (&ToldCondition, Option<Weight>),
    view: &ToldCluster,
) -> Option<Check> {
    let kind = *condition.kind.known()?;
    let ok = match (kind.bad(), condition.status.known()) {
        // Well, whichever it is.
        (None, _) => true,
        (Some((bad, _)), Some(status)) if *status == bad => weight.is_none(),
        // The line carried Git until it went to its host directly again.
        (Some(_), Some(Status::Unknown)) if kind == ConditionType::GitOverLine => {
            condition.reason == "Direct"
        }
        // For the minute in which a commit that fails is no fault yet.
        (Some(_), Some(Status::Unknown)) if kind == ConditionType::ChildrenReady => {
            condition.reason == "Waits"
        }
        (Some(_), status) => status.is_some_and(|status| *status != Status::Unknown),
    };
    let text = [&condition.reason, &condition.message]
        .map(String::as_str)
        .join(": ");
    Some(Check {
        name: format!("{kind:?}"),
        ok,
        found: format!(
            "{} {}",
            status(&condition.status),
            text.trim_end_matches(": ")
        ),
        fix: fix(kind, &condition.reason, view),
    })
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::api::Problem;
    use crate::wire::report::Phase;
    use crate::wire::word::Word;

    fn says(kind: ConditionType, status: Status) -> ToldCondition {
        let since = "2026-01-01T00:00:00Z".to_owned();
        ToldCondition {
            kind: kind.into(),
            status: status.into(),
            reason: "Why".to_owned(),
            message: String::new(),
            since,
        }
    }

    pub(super) fn cluster() -> ToldCluster {
        crate::cli::cluster::wait::tests::cluster(Phase::Pending, &[], vec![])
    }

    /// Of one that stands alone.
    fn alone(told: &ToldCondition, view: &ToldCluster) -> Option<Check> {
        let weight = weights([told.known()].into_iter()).next().flatten();
        condition((told, weight), view)
    }

    #[test]
    fn a_condition_is_good_when_it_is_as_wanted() {
        let view = cluster();
        for (kind, status, ok) in [
            (ConditionType::Synced, Status::True, true),
            (ConditionType::Synced, Status::False, false),
            (ConditionType::Synced, Status::Unknown, false),
            (ConditionType::HostKeyMismatch, Status::False, true),
            (ConditionType::HostKeyMismatch, Status::True, false),
            (ConditionType::EngineFromGit, Status::True, true),
            (ConditionType::EngineFromGit, Status::False, true),
        ] {
            let check = alone(&says(kind, status), &view).unwrap();
            assert_eq!(check.ok, ok, "{kind:?} {status:?}");
            assert!(!check.fix.is_empty());
        }
        // The agent's last word of a line that carries no Git any more.
        let mut direct = says(ConditionType::GitOverLine, Status::Unknown);
        assert!(!alone(&direct, &view).unwrap().ok);
        direct.reason = "Direct".to_owned();
        assert!(alone(&direct, &view).unwrap().ok);
        let mut pushed = says(ConditionType::ChildrenReady, Status::Unknown);
        assert!(!alone(&pushed, &view).unwrap().ok);
        pushed.reason = "Waits".to_owned();
        assert!(alone(&pushed, &view).unwrap().ok);
        let mut later = says(ConditionType::Synced, Status::True);
        later.status = Word::Later("Mostly".to_owned());
        let check = alone(&later, &view).unwrap();
        assert!(
            !check.ok && check.found.starts_with("Mostly Why"),
            "{check:?}"
        );
        later.kind = Word::Later("Compacted".to_owned());
        assert_eq!(alone(&later, &view), None);
    }

    /// Its advice was to have the agent put in what it leaves to the other manager.
    #[test]
    fn beside_another_manager_no_guard_is_missed() {
        let mut view = cluster();
        view.line.up = true;
        let mut ok = |observes| {
            let unguarded = says(ConditionType::Guarded, Status::False);
            view.conditions = vec![unguarded, says(ConditionType::ObserveOnly, observes)];
            let checks = conditions(&view).into_iter().skip(1);
            checks.map(|check| check.ok).collect::<Vec<_>>()
        };
        assert_eq!(ok(Status::True), [true, false]);
        assert_eq!(ok(Status::False), [false, true]);
    }

    #[test]
    fn a_line_of_which_nothing_is_said_ends_with_what_is_known() {
        let mut view = cluster();
        assert_eq!(line(&view).found, "down, last seen never");
        let mut down = says(ConditionType::LineUp, Status::False);
        down.message = "it was cut".to_owned();
        view.conditions = vec![down];
        assert_eq!(line(&view).found, "down, last seen never; it was cut");
    }

    #[test]
    fn an_api_server_that_the_user_may_not_ask_is_no_failure_of_the_cluster() {
        let refused = |hop: &str, rule: &str| {
            let problem = Problem {
                kind: String::new(),
                title: String::new(),
                status: 403,
                detail: "hub: ada has no grant on cluster eu1".to_owned(),
                hop: hop.to_owned(),
                next: "ask".to_owned(),
                request_id: String::new(),
                more: BTreeMap::from([("rule".to_owned(), rule.to_owned())]),
            };
            api(Err(client::Error::Refused {
                operation: "reach eu1".to_owned(),
                problem: Box::new(problem),
            }))
        };
        let skipped = refused("hub", NO_GRANT);
        assert!(skipped.ok, "{skipped:?}");
        assert_eq!(
            skipped.found,
            "skipped: ada has no grant on cluster eu1; an admin gives one: linesman grant add --help"
        );
        for (hop, rule) in [
            ("agent", "LineOff"),
            ("hub", "Method"),
            ("api server", NO_GRANT),
        ] {
            assert!(!refused(hop, rule).ok, "{hop} {rule}");
        }
        let answers = api(Ok(serde_json::json!({"gitVersion": "v1.35.4"})));
        assert_eq!(answers.found, "Kubernetes v1.35.4 answers through the line");
    }

    #[test]
    fn what_is_not_live_is_marked_and_fails() {
        let found = Diagnosis {
            live: false,
            at: "2026-01-01T00:00:00Z".to_owned(),
            note: "the agent has no line to this hub now".to_owned(),
            components: Vec::new(),
        };
        let check = away(&found);
        assert!(
            !check.ok && check.found.starts_with("not live: "),
            "{check:?}"
        );
        assert!(check.found.contains("known at 2026-01-01"), "{check:?}");
    }
}
