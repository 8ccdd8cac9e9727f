//! Checks of one cluster: its line, its conditions, and what its agent finds when it is asked.

use super::tried;
use crate::cli::output::{counted, status};
use crate::client::Client;
use crate::wire::api::{Check, Component, Diagnosis, ToldCluster, ToldCondition};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status};

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
        let version = client.cluster_version(name).await;
        checks.push(tried("api", version, |v| {
            format!(
                "Kubernetes {} answers through the line",
                v["gitVersion"].as_str().unwrap_or("of unknown version")
            )
        }));
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
    let known = |c: &&ToldCondition| view.line.up || c.status != Status::Unknown;
    let others = view
        .conditions
        .iter()
        .filter(|c| c.kind != ConditionType::LineUp);
    let mut checks = vec![line(view)];
    checks.extend(
        others
            .filter(known)
            .filter_map(|c| condition(c, &view.name)),
    );
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
fn condition(condition: &ToldCondition, cluster: &ClusterName) -> Option<Check> {
    let kind = *condition.kind.known()?;
    // These are bad when they hold; all others when they do not.
    let bad = matches!(
        kind,
        ConditionType::HostKeyMismatch
            | ConditionType::Quarantined
            | ConditionType::ObserveOnly
            | ConditionType::Paused
            | ConditionType::SafeHealsOnly
            | ConditionType::Uncovered
            | ConditionType::RightsLost
            | ConditionType::JoinConflict
            | ConditionType::IdentityRevoked
    );
    let wanted = if bad { Status::False } else { Status::True };
    let text = [&condition.reason, &condition.message]
        .map(String::as_str)
        .join(": ");
    Some(Check {
        name: format!("{kind:?}"),
        // Whoever installs the engine, it is well.
        ok: condition.status == wanted || kind == ConditionType::EngineFromGit,
        found: format!(
            "{} {}",
            status(&condition.status),
            text.trim_end_matches(": ")
        ),
        fix: fix(kind, cluster),
    })
}

fn fix(kind: ConditionType, name: &ClusterName) -> String {
    match kind {
        ConditionType::Joined | ConditionType::JoinConflict | ConditionType::IdentityRevoked => {
            format!("apply new YAML in the cluster: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::RightsLost => {
            format!("apply the YAML again, it restores the roles: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::DeployKeyRegistered => "look at the hub's checks above, and at the catalog's Git host".to_owned(),
        ConditionType::HostKeysKnown | ConditionType::HostKeyMismatch => {
            "see who meets which key: linesman githost show; if the Git host's was changed on purpose: linesman githost accept-host-key".to_owned()
        }
        ConditionType::GitReachable => {
            format!("see that the cluster reaches the catalog's Git host, or let Git go over the line: linesman cluster git {name} line")
        }
        ConditionType::GitOverLine => {
            "see that the hub itself reaches the catalog's Git host: its end of the line dials it".to_owned()
        }
        ConditionType::EngineInstalled | ConditionType::EngineHealthy => {
            format!("see what is being mended: linesman heal list {name}")
        }
        ConditionType::EngineCurrent => {
            format!("see what it says, then: linesman engine set {name} flux|argocd VERSION")
        }
        ConditionType::HubUnderstood => {
            format!("give the cluster an agent of the hub's version: linesman cluster upgrade {name}; where it could not join: linesman cluster readopt {name}")
        }
        ConditionType::HubTrusted => {
            format!("compare the fingerprints that it names; if the hub's key was replaced: linesman cluster readopt {name} --file adopt.yaml; if not, see what answers in the hub's place")
        }
        ConditionType::AgentCurrent => {
            format!("see what it says, then another image, or no wish: linesman cluster upgrade {name}")
        }
        ConditionType::Synced => {
            "see what the engine says: kubectl -n flux-system get gitrepositories,kustomizations".to_owned()
        }
        ConditionType::ChildrenReady => {
            "mend the catalog: see kubectl get kustomizations,helmreleases --all-namespaces".to_owned()
        }
        ConditionType::Guarded => {
            format!("apply the YAML again, it gives the agent the right to its policy (Kubernetes 1.30 or later): linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::LineUp
        | ConditionType::EngineFromGit
        | ConditionType::Quarantined
        | ConditionType::SnapshotFresh
        | ConditionType::ObserveOnly
        | ConditionType::Paused
        | ConditionType::SafeHealsOnly
        | ConditionType::PolicyAccepted
        | ConditionType::Uncovered => format!("see: linesman cluster show {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_condition_is_good_when_it_is_as_wanted() {
        let name: ClusterName = "eu1".parse().unwrap();
        for (kind, status, ok) in [
            (ConditionType::Synced, Status::True, true),
            (ConditionType::Synced, Status::False, false),
            (ConditionType::Synced, Status::Unknown, false),
            (ConditionType::HostKeyMismatch, Status::False, true),
            (ConditionType::HostKeyMismatch, Status::True, false),
        ] {
            let check = condition(&says(kind, status), &name).unwrap();
            assert_eq!(check.ok, ok, "{kind:?} {status:?}");
            assert!(!check.fix.is_empty());
        }
        let mut later = says(ConditionType::Synced, Status::True);
        later.status = Word::Later("Mostly".to_owned());
        let check = condition(&later, &name).unwrap();
        assert!(
            !check.ok && check.found.starts_with("Mostly Why"),
            "{check:?}"
        );
        later.kind = Word::Later("Compacted".to_owned());
        assert_eq!(condition(&later, &name), None);
    }

    #[test]
    fn a_line_of_which_nothing_is_said_ends_with_what_is_known() {
        let mut view = crate::cli::cluster::wait::tests::cluster(
            crate::wire::report::Phase::Pending,
            &[],
            vec![],
        );
        assert_eq!(line(&view).found, "down, last seen never");
        let mut down = says(ConditionType::LineUp, Status::False);
        down.message = "it was cut".to_owned();
        view.conditions = vec![down];
        assert_eq!(line(&view).found, "down, last seen never; it was cut");
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
