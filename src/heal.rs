//! What both ends count of heals: how long the parts of one took, and the closed sets of their labels. Pure.

use time::OffsetDateTime;

use crate::clock::parse_rfc3339;
use crate::wire::api::Took;
use crate::wire::report::{HealRecord, HealResult, HealStep};

/// The classes of the faults that only the hub sees, as the agent's table has them.
pub const AGENT_LOST: &str = "AgentLost";
pub const AGENT_LOST_NUMBER: u8 = 50;
pub const AGENT_LOST_SEEN: &str =
    "at the hub: nothing was heard of a cluster's agent, on its line or beside it";
pub const AGENT_LOST_ADVICE: &str = "look whether the cluster is up and reaches the hub; then at its agent: 'kubectl --namespace linesman get pods', and its log";

pub const DUPLICATE_AGENT: &str = "DuplicateAgent";
pub const DUPLICATE_AGENT_NUMBER: u8 = 57;
pub const DUPLICATE_AGENT_SEEN: &str = "at the hub: three times in ten minutes another agent with a cluster's keys took its line while the one before answered";
pub const DUPLICATE_AGENT_ADVICE: &str = "find the other agent by its address: a copy of the cluster, or of its Secret linesman-keys; end it there ('kubectl delete namespace linesman' in the copy, which 'linesman cluster add' adopts under a name of its own); where it is not yours, 'linesman cluster revoke', then 'linesman cluster readopt' gives the cluster new keys";

/// A class of the agent's own, of which the hub makes more than of others.
pub const SOURCE_ALTERED: &str = "SourceAltered";

/// Every class of fault; the agent's table of them is held against this list by a test.
pub const CLASSES: [&str; 61] = [
    "AgentDrift",
    "AgentLost",
    "ApiUnhealthy",
    "ApplyFailed",
    "ArtifactLost",
    "ArtifactUnreachable",
    "BadEngineCommit",
    "BadImage",
    "BuildFailed",
    "ClockSkew",
    "ConfigRefMissing",
    "CrashLoop",
    "CrdMissing",
    "CrdStoredVersion",
    "CrdTerminating",
    "DependencyNotReady",
    "DuplicateAgent",
    "EngineConfigBroken",
    "EngineRemovedByCommit",
    "EngineSecretMissing",
    "EngineUpgradeStuck",
    "EventSinkMissing",
    "ForeignManager",
    "GitSecretBad",
    "GitUnreachable",
    "HalfRolled",
    "HealthCheckFailed",
    "HostKeyMismatch",
    "KeyRevoked",
    "KubernetesUnsupported",
    "LeaderStuck",
    "LeftoverFinalizers",
    "NamespaceMissing",
    "NamespaceTerminating",
    "NotAvailable",
    "ObjectAltered",
    "ObjectMissing",
    "OomKilled",
    "OperationStuck",
    "PathMissing",
    "PodSecurityBlocks",
    "PodSuperseded",
    "PolicyBlocks",
    "ProjectMissing",
    "QueueWedged",
    "QuotaBlocks",
    "RbacAltered",
    "ReadyButUseless",
    "RedisDown",
    "RegistryDown",
    "RootDeleted",
    "ScaledToZero",
    "ServiceAccountMissing",
    "SignatureFailed",
    SOURCE_ALTERED,
    "SuspendedByHuman",
    "SyncObjectsDeleted",
    "TwoInstalls",
    "UndecodableObject",
    "Unschedulable",
    "WebhookBlocks",
];

/// Every action of a step; held against the agent's in the same way.
pub const STEPS: [&str; 30] = [
    "alarm",
    "apply",
    "commit",
    "create",
    "create-held",
    "cut-rights",
    "drop-failed",
    "drop-superseded",
    "free-lease",
    "hold",
    "lift",
    "lock",
    "migrate",
    "nudge",
    "recreate",
    "reinstate",
    "release",
    "replace",
    "reset",
    "restart",
    "restore",
    "retry",
    "scale-to-zero",
    "set-aside",
    "settle",
    "shield",
    "start",
    "terminate",
    "unpin",
    "write-key",
];

/// The entry that names a commit beside the one that a heal is about; its outcome begins with the revision.
pub const COMMIT: &str = "commit";

/// What is not in a closed set, such as a class of a newer agent.
const OTHER: &str = "other";
/// The step of a heal in which nothing was done.
const NONE: &str = "none";

/// The label of a class; never a peer's word.
pub fn class(name: &str) -> &'static str {
    known(&CLASSES, name)
}

/// The label of what mended it: the last step that had an outcome other than an error, else the last one.
pub fn step(heal: &HealRecord) -> &'static str {
    let good = |outcome: &str| matches!(outcome, "ok" | "nothing to change");
    let mut done = heal.steps.iter().rev();
    let step = done
        .find(|s| good(&s.outcome))
        .or_else(|| heal.steps.last());
    step.map_or(NONE, |s| known(&STEPS, &s.action))
}

/// The revision that an entry names.
pub fn commit_of(step: &HealStep) -> Option<&str> {
    let first = step.outcome.split(' ').next();
    first.filter(|_| step.action == COMMIT)
}

/// The label of how it ended.
pub fn result(result: HealResult) -> &'static str {
    match result {
        HealResult::Open => "open",
        HealResult::Healed => "healed",
        HealResult::Reported => "reported",
        HealResult::Failed => "failed",
    }
}

/// Whether there is nothing more to come of it.
pub fn is_over(heal: &HealRecord) -> bool {
    heal.restored_at.is_some() || heal.result == HealResult::Failed
}

/// How long its parts took.
pub fn took(heal: &HealRecord) -> Took {
    let at = |text: &Option<String>| text.as_deref().and_then(parse_rfc3339);
    let detected = parse_rfc3339(&heal.detected_at);
    let acted = at(&heal.acted_at);
    Took {
        detect_ms: between(at(&heal.fault_at), detected),
        act_ms: between(detected, acted),
        restore_ms: between(acted.or(detected), at(&heal.restored_at)),
    }
}

/// Clocks of two writers may differ by a little: never less than nothing.
fn between(from: Option<OffsetDateTime>, to: Option<OffsetDateTime>) -> Option<u64> {
    let span = to? - from?;
    Some(u64::try_from(span.whole_milliseconds()).unwrap_or(0))
}

fn known(all: &[&'static str], name: &str) -> &'static str {
    all.iter().find(|k| **k == name).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::Scene;

    fn heal(steps: &[(&str, &str)]) -> HealRecord {
        let at = |text: &str| format!("2026-01-01T00:00:{text}Z");
        let step = |(action, outcome): &(&str, &str)| HealStep {
            action: (*action).to_owned(),
            object: "x".to_owned(),
            at: at("10.300"),
            outcome: (*outcome).to_owned(),
        };
        HealRecord {
            id: "1".to_owned(),
            class: "ScaledToZero".to_owned(),
            number: 3,
            meaning: String::new(),
            object: "x".to_owned(),
            evidence: String::new(),
            writer: String::new(),
            revision: String::new(),
            commit: String::new(),
            steps: steps.iter().map(step).collect(),
            fault_at: Some(at("10")),
            detected_at: at("10.200"),
            acted_at: Some(at("10.300")),
            restored_at: Some(at("19")),
            result: HealResult::Healed,
            next: String::new(),
            scene: Scene::default(),
        }
    }

    #[test]
    fn the_step_that_counts_is_the_last_that_worked() {
        for (steps, label) in [
            (&[][..], "none"),
            (&[("apply", "ok"), ("nudge", "timed out")], "apply"),
            (&[("apply", "timed out")], "apply"),
            (&[("create", "timed out"), ("apply", "ok")], "apply"),
            (&[("a peer's word", "ok")], "other"),
        ] {
            assert_eq!(step(&heal(steps)), label, "{steps:?}");
        }
        assert_eq!(class("ScaledToZero"), "ScaledToZero");
        assert_eq!(class("a peer's word"), "other");
    }

    #[test]
    fn parts_that_are_not_known_are_absent_and_none_is_negative() {
        let mut heal = heal(&[]);
        let all = Took {
            detect_ms: Some(200),
            act_ms: Some(100),
            restore_ms: Some(8_700),
        };
        assert_eq!(took(&heal), all);
        heal.fault_at = Some("2026-01-01T00:00:10.900Z".to_owned());
        heal.acted_at = None;
        let some = Took {
            detect_ms: Some(0),
            act_ms: None,
            restore_ms: Some(8_800),
        };
        assert_eq!(took(&heal), some);
        heal.fault_at = None;
        heal.restored_at = None;
        assert_eq!(took(&heal), Took::default());
    }
}
