//! What a person does about a condition that is not as it should be.

use super::LINE_FIX;
use crate::cli::cluster::in_force;
use crate::wire::api::{EngineKind, ToldCluster};
use crate::wire::id::ClusterName;
use crate::wire::report::ConditionType;

/// What a person does about it.
pub(super) fn fix(kind: ConditionType, reason: &str, view: &ToldCluster) -> String {
    let name = &view.name;
    match kind {
        ConditionType::LineUp => LINE_FIX.to_owned(),
        ConditionType::JoinConflict if reason == "KeyKnown" => {
            format!("its YAML was applied in another cluster; the condition has what to do about that: linesman cluster show {name}")
        }
        ConditionType::JoinConflict if reason == "IncarnationChanged" => {
            format!("if the cluster was made anew, apply new YAML: linesman cluster readopt {name} --new-cluster --file adopt.yaml")
        }
        ConditionType::Joined | ConditionType::JoinConflict | ConditionType::IdentityRevoked => {
            format!("apply new YAML in the cluster: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::RightsLost => {
            format!("apply the YAML again, it restores the roles: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::DeployKeyRegistered => "look at the hub's own checks: linesman doctor".to_owned(),
        ConditionType::HostKeysKnown | ConditionType::HostKeyMismatch => {
            "see who meets which key: linesman githost show; if the Git host's key was changed on purpose: linesman githost accept-host-key".to_owned()
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
        ConditionType::HealsTaken => {
            format!("see what is open: linesman heal list {name} --open; so many at once no cluster has by itself: see what its agent runs, and whether somebody else has its keys")
        }
        ConditionType::EngineCurrent => change(reason, view),
        ConditionType::EngineFromGit => "change the engine's version by a commit".to_owned(),
        ConditionType::HubUnderstood => {
            format!("give the cluster an agent of the hub's version: linesman cluster upgrade {name} --image REF; where it could not join: linesman cluster readopt {name}")
        }
        ConditionType::HubTrusted => {
            format!("compare the fingerprints that it names; if the hub's key was replaced: linesman cluster readopt {name} --file adopt.yaml; if not, see what answers in the hub's place")
        }
        ConditionType::AgentCurrent => {
            format!("see what it says, then another image: linesman cluster upgrade {name} --image REF, or take the request back: linesman cluster upgrade {name} --withdraw")
        }
        ConditionType::Synced => format!("see what the engine says: {}", roots(view)),
        ConditionType::ChildrenReady => format!("mend the catalog: see {}", children(view)),
        ConditionType::Guarded if matches!(reason, "Missing" | "Altered") => {
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
            format!("mend it in the catalog, by a commit; where the same commit does no harm any more, or the catalog no longer has the object: linesman cluster lift {name} --reason TEXT")
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

/// The same of a change of the engine. Of a hand-over that was taken back the hub's word stays, and `engine set` with that begins it
/// once more.
fn change(reason: &str, view: &ToldCluster) -> String {
    let (name, wished) = (&view.name, &view.engine);
    match in_force(view).filter(|engine| wished != engine) {
        Some(engine) => {
            format!(
                "see what it says; to end the attempt: linesman cluster engine {name} {engine} --replace; once mended: linesman cluster engine {name} {wished} --replace"
            )
        }
        None if reason == "Changing" => {
            "see what it waits for: it goes on by itself, or is taken back".to_owned()
        }
        None => format!("see what it says, then: linesman engine set {name} {wished} VERSION"),
    }
}

/// The engine in force, where that is known, else the one that is wished.
fn engine(view: &ToldCluster) -> Option<EngineKind> {
    in_force(view).or_else(|| view.engine.known().copied())
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
mod tests {
    use super::super::tests::cluster;
    use super::*;
    use crate::wire::report::ENGINE_IN_FORCE;

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

    /// `engine set` with the engine that is wished began the hand-over again that had just been taken back.
    #[test]
    fn a_hand_over_that_was_taken_back_is_ended_by_the_engine_in_force() {
        use clap::Parser as _;
        let mut view = cluster();
        view.engine = EngineKind::Argocd.into();
        let asked =
            |reason: &str, view: &ToldCluster| fix(ConditionType::EngineCurrent, reason, view);
        let set = "see what it says, then: linesman engine set eu1 argocd VERSION";
        let waits = "see what it waits for: it goes on by itself, or is taken back";
        assert_eq!(asked("Returned", &view), set);
        let mut in_force = |engine: &str| {
            let fact = (ENGINE_IN_FORCE.to_owned(), engine.to_owned());
            view.facts.extend([fact]);
            ["Returned", "Changing"].map(|reason| asked(reason, &view))
        };
        assert_eq!(in_force("argocd"), [set, waits]);
        let back = "see what it says; to end the attempt: linesman cluster engine eu1 flux --replace; once mended: linesman cluster engine eu1 argocd --replace";
        assert_eq!(in_force("flux"), [back, back]);
        for named in back.split(": linesman ").skip(1) {
            let command = named.split(';').next().unwrap();
            let words = ["linesman"].into_iter().chain(command.split_whitespace());
            assert!(crate::cli::Cli::try_parse_from(words).is_ok(), "{command}");
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
}
