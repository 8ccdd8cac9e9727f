//! Checks of one cluster: its line, its conditions, and what its agent finds when it is asked.

use super::tried;
use crate::cli::output::{counted, status};
use crate::client::{self, Client};
use crate::hub::access::NO_GRANT;
use crate::wire::api::{Check, Component, Diagnosis, EngineKind, ToldCluster, ToldCondition};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, ENGINE_IN_FORCE, Status, Weight, weights};

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

/// What a person does about it.
fn fix(kind: ConditionType, reason: &str, view: &ToldCluster) -> String {
    let name = &view.name;
    match kind {
        ConditionType::LineUp => LINE_FIX.to_owned(),
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
            format!("see what it says, then: linesman engine set {name} {} VERSION", view.engine)
        }
        ConditionType::EngineFromGit => "change the engine's version by a commit".to_owned(),
        ConditionType::HubUnderstood => {
            format!("give the cluster an agent of the hub's version: linesman cluster upgrade {name} --image REF; where it could not join: linesman cluster readopt {name}")
        }
        ConditionType::HubTrusted => {
            format!("compare the fingerprints that it names; if the hub's key was replaced: linesman cluster readopt {name} --file adopt.yaml; if not, see what answers in the hub's place")
        }
        ConditionType::AgentCurrent => {
            format!("see what it says, then another image: linesman cluster upgrade {name} --image REF, or no wish: linesman cluster upgrade {name} --withdraw")
        }
        ConditionType::Synced => format!("see what the engine says: {}", roots(view)),
        ConditionType::ChildrenReady => format!("mend the catalog: see {}", children(view)),
        ConditionType::Guarded if reason == "Missing" => {
            format!("see what is being mended: linesman heal list {name}")
        }
        ConditionType::Guarded => {
            format!("apply the YAML again, it gives the agent the right to its policy (Kubernetes 1.30 or later): linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::Quarantined
        | ConditionType::SnapshotFresh
        | ConditionType::ObserveOnly
        | ConditionType::Paused
        | ConditionType::SafeHealsOnly
        | ConditionType::PolicyAccepted
        | ConditionType::Uncovered => held_up(kind, reason, name),
    }
}

const HEAL_ON: &str = "the cluster's owner has it mended again: kubectl -n linesman patch configmap linesman-policy --type merge -p '{\"data\":{\"heal\":\"on\"}}'";
const POLICY: &str =
    "the cluster's owner mends what it names: kubectl -n linesman edit configmap linesman-policy";
const SCOPE: &str =
    "the cluster's owner mends the list: kubectl -n linesman edit configmap linesman-scope";

/// The same of what somebody's word, or what is missing of one, keeps the agent from.
fn held_up(kind: ConditionType, reason: &str, name: &ClusterName) -> String {
    match (kind, reason) {
        (ConditionType::Quarantined, "UndecodableObject") => {
            "correct the field that it names, in the catalog where the object comes from there, else on the object; the agent then resumes it".to_owned()
        }
        (ConditionType::Quarantined, _) => {
            format!("mend it in the catalog, by a commit; where the same commit does no harm any more: linesman cluster lift {name} --reason TEXT")
        }
        (ConditionType::SnapshotFresh, _) => {
            format!("the agent takes one when the engine works and has answered; see what is in the way: linesman heal list {name}")
        }
        (ConditionType::ObserveOnly, _) => {
            "decide who manages the engine: take the mark that it names off that object, or leave the engine to the other manager".to_owned()
        }
        (ConditionType::Paused | ConditionType::SafeHealsOnly, "HealOff" | "HealSafe") => HEAL_ON.to_owned(),
        (ConditionType::Paused, "PolicyInvalid") | (ConditionType::PolicyAccepted, "Invalid") => POLICY.to_owned(),
        (ConditionType::Paused, _) => {
            format!("it ends by itself; the hub's window at once: linesman cluster resume {name}; one that was opened in the cluster, there, as it says")
        }
        (ConditionType::SafeHealsOnly, _) => {
            "find out what the clusters that fail have in common: linesman heal list; it ends by itself".to_owned()
        }
        (ConditionType::Uncovered, "NamespaceMissing") => {
            "create the namespace, or take it off the list: kubectl -n linesman edit configmap linesman-scope".to_owned()
        }
        (ConditionType::Uncovered, "NoScope" | "Foreign") => SCOPE.to_owned(),
        // What the agent may not read or write.
        _ => {
            format!("apply the YAML again, it gives the agent its rights: linesman cluster readopt {name} --file adopt.yaml")
        }
    }
}

/// The engine in force, where the agent has said so: another one may be wished.
fn engine(view: &ToldCluster) -> Option<EngineKind> {
    let in_force = view.facts.get(ENGINE_IN_FORCE);
    let in_force = in_force.and_then(|word| EngineKind::parse(word));
    in_force.or_else(|| view.engine.known().copied())
}

/// The command that shows what the engine says of its root. Argo CD may live in any namespace.
fn roots(view: &ToldCluster) -> &'static str {
    match engine(view) {
        Some(EngineKind::Flux) => "kubectl -n flux-system get gitrepositories,kustomizations",
        Some(EngineKind::Argocd) => "kubectl get applications.argoproj.io --all-namespaces",
        None => "kubectl get, of its sync objects",
    }
}

/// The same of what the catalog brought below it.
fn children(view: &ToldCluster) -> &'static str {
    match engine(view) {
        Some(EngineKind::Flux) => "kubectl get kustomizations,helmreleases --all-namespaces",
        Some(EngineKind::Argocd) | None => roots(view),
    }
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

    fn cluster() -> ToldCluster {
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

    /// Each sent people to `cluster show`, which has the words that doctor shows already.
    #[test]
    fn whatever_keeps_the_agent_from_its_work_names_who_ends_it() {
        use ConditionType as C;
        let view = cluster();
        for (kind, reason, says) in [
            (
                C::Quarantined,
                "BadEngineCommit",
                "linesman cluster lift eu1 --reason TEXT",
            ),
            (C::Quarantined, "UndecodableObject", "correct the field"),
            (C::Paused, "Maintenance", "linesman cluster resume eu1"),
            (C::Paused, "HealOff", r#"-p '{"data":{"heal":"on"}}'"#),
            (C::Paused, "PolicyInvalid", "edit configmap linesman-policy"),
            (
                C::SafeHealsOnly,
                "HealSafe",
                r#"-p '{"data":{"heal":"on"}}'"#,
            ),
            (C::SafeHealsOnly, "Incident", "linesman heal list"),
            (
                C::PolicyAccepted,
                "Invalid",
                "edit configmap linesman-policy",
            ),
            (C::PolicyAccepted, "Unread", "linesman cluster readopt eu1"),
            (
                C::Uncovered,
                "NamespaceMissing",
                "edit configmap linesman-scope",
            ),
            (C::Uncovered, "Refused", "linesman cluster readopt eu1"),
            (C::ObserveOnly, "ForeignManager", "who manages the engine"),
            (C::SnapshotFresh, "NoneYet", "linesman heal list eu1"),
            (C::HubUnderstood, "AgentOlder", "upgrade eu1 --image REF"),
            (C::AgentCurrent, "Returned", "upgrade eu1 --withdraw"),
        ] {
            let fix = fix(kind, reason, &view);
            assert!(fix.contains(says), "{kind:?} {reason}: {fix}");
            assert!(!fix.contains("cluster show"), "{kind:?} {reason}: {fix}");
        }
    }

    /// `cluster upgrade NAME` alone was refused by the program that named it.
    #[test]
    fn each_command_of_a_next_action_is_one_that_the_program_takes() {
        use ConditionType as C;
        use clap::Parser as _;
        let view = cluster();
        let mut read = 0;
        for kind in [
            C::Joined,
            C::RightsLost,
            C::HostKeyMismatch,
            C::GitReachable,
            C::EngineHealthy,
            C::EngineCurrent,
            C::HubUnderstood,
            C::HubTrusted,
            C::AgentCurrent,
            C::Guarded,
            C::Quarantined,
            C::SnapshotFresh,
            C::Paused,
            C::SafeHealsOnly,
            C::Uncovered,
        ] {
            let fix = fix(kind, "", &view);
            for named in fix.split(": linesman ").skip(1) {
                let command = named.split([';', ',']).next().unwrap();
                let words = ["linesman"].into_iter().chain(command.split_whitespace());
                let parsed = crate::cli::Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
                read += 1;
            }
        }
        assert_eq!(read, 18);
    }

    #[test]
    fn what_the_engine_says_is_looked_up_where_the_engine_in_force_says_it() {
        let mut view = cluster();
        let flux =
            "see what the engine says: kubectl -n flux-system get gitrepositories,kustomizations";
        let argocd =
            "see what the engine says: kubectl get applications.argoproj.io --all-namespaces";
        let asked = |view: &ToldCluster| fix(ConditionType::Synced, "", view);
        assert_eq!(asked(&view), flux);
        view.engine = EngineKind::Argocd.into();
        assert_eq!(asked(&view), argocd);
        let children = fix(ConditionType::ChildrenReady, "", &view);
        assert!(
            children.ends_with("applications.argoproj.io --all-namespaces"),
            "{children}"
        );
        // It is on its way to the other one.
        let flux_yet = (ENGINE_IN_FORCE.to_owned(), "flux".to_owned());
        view.facts.extend([flux_yet]);
        assert_eq!(asked(&view), flux);
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
