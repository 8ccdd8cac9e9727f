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
pub const STEPS: [&str; 31] = [
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
    "waits",
    "write-key",
];

/// The entry that names a commit beside the one that a heal is about; its outcome begins with the revision.
pub const COMMIT: &str = "commit";

/// What is not in a closed set, such as a class of a newer agent.
pub const OTHER: &str = "other";
/// The step of a heal in which nothing was done.
const NONE: &str = "none";

/// The label of a class; never a peer's word.
pub fn class(name: &str) -> &'static str {
    known(&CLASSES, name)
}

/// The label of what mended it: the last step that had an outcome other than an error, else the last one that is no word on the proof.
pub fn step(heal: &HealRecord) -> &'static str {
    let good = |outcome: &str| matches!(outcome, "ok" | "nothing to change");
    let mut done = heal.steps.iter().rev();
    let step = done
        .find(|s| good(&s.outcome))
        .or_else(|| heal.steps.iter().rfind(|s| s.action != "waits"));
    step.map_or(NONE, |s| known(&STEPS, &s.action))
}

/// The revision that an entry names.
pub fn commit_of(step: &HealStep) -> Option<&str> {
    let first = step.outcome.split(' ').next();
    first.filter(|_| step.action == COMMIT)
}

/// Whether an entry says that something was done against the fault. A question to the engine mends nothing, and the others put a
/// word on record.
pub fn acts(step: &HealStep) -> bool {
    !matches!(
        step.action.as_str(),
        "nudge" | "retry" | "report" | "alarm" | "waits" | COMMIT
    )
}

/// When something was done against the fault last, as its agent says, who was heard at `now`. What a clock that is ahead says, or
/// is no time at all, counts as done then, and so it does when it is told again: `known` is what was told before, with this time.
pub fn last_act(
    heal: &HealRecord,
    known: Option<(&HealRecord, OffsetDateTime)>,
    now: OffsetDateTime,
) -> Option<OffsetDateTime> {
    let told: &[HealStep] = known.map_or(&[], |(before, _)| before.steps.as_slice());
    let same = |one: &HealStep, other: &HealStep| {
        one.at == other.at && one.action == other.action && one.object == other.object
    };
    let done = heal.steps.iter().filter(|step| acts(step));
    let new = done.filter(|step| !told.iter().any(|before| same(before, step)));
    let times = new.map(|step| parse_rfc3339(&step.at).map_or(now, |at| at.min(now)));
    times.max().max(known.map(|(_, at)| at))
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
            (&[("apply", "timed out"), ("waits", "available")], "apply"),
            (&[("create", "timed out"), ("apply", "ok")], "apply"),
            (&[("a peer's word", "ok")], "other"),
        ] {
            assert_eq!(step(&heal(steps)), label, "{steps:?}");
        }
        assert_eq!(class("ScaledToZero"), "ScaledToZero");
        assert_eq!(class("a peer's word"), "other");
    }

    /// With the times of the steps.
    fn acted(steps: &[(&str, &str)]) -> HealRecord {
        let step = |(action, at): &(&str, &str)| HealStep {
            action: (*action).to_owned(),
            object: "x".to_owned(),
            at: (*at).to_owned(),
            outcome: "ok".to_owned(),
        };
        HealRecord {
            steps: steps.iter().map(step).collect(),
            ..heal(&[])
        }
    }

    #[test]
    fn the_last_act_is_the_latest_and_no_later_than_it_was_heard_of() {
        let at = |text: &str| parse_rfc3339(&format!("2026-01-01T{text}Z")).unwrap();
        let now = at("00:01:00");
        let dated = |steps: &[(&str, &str)]| last_act(&acted(steps), None, now);
        let [early, late] = ["2026-01-01T00:00:10.000Z", "2026-01-01T00:00:20.000Z"];
        assert_eq!(dated(&[]), None);
        assert_eq!(
            dated(&[("apply", late), ("restart", early)]),
            Some(at("00:00:20")),
            "the clock was set back in between"
        );
        for action in ["nudge", "retry", "report", "alarm", "waits", COMMIT] {
            assert_eq!(dated(&[(action, late)]), None, "{action}");
            let both = dated(&[("create", early), (action, late)]);
            assert_eq!(both, Some(at("00:00:10")), "{action}");
        }
        for said in ["2027-01-01T00:00:00.000Z", "", "yesterday"] {
            assert_eq!(dated(&[("apply", said)]), Some(now), "{said}");
        }
    }

    /// W26: by a clock that is six hours ahead, each telling is earlier than the act.
    #[test]
    fn an_act_that_is_told_again_was_done_when_it_was_told_first() {
        let at = |text: &str| parse_rfc3339(&format!("2026-01-01T{text}Z")).unwrap();
        let (first, ahead) = (at("10:00:00"), ("apply", "2026-01-01T16:00:00.000Z"));
        let before = acted(&[ahead]);
        let known = Some((&before, first));
        let again = |steps: &[(&str, &str)], now| last_act(&acted(steps), known, at(now));
        assert_eq!(again(&[ahead], "15:00:00"), Some(first));
        let noted = [ahead, ("alarm", "2026-01-01T16:00:01.000Z")];
        assert_eq!(again(&noted, "15:00:00"), Some(first));
        let next = [ahead, ("apply", "2026-01-01T21:00:00.000Z")];
        assert_eq!(again(&next, "15:00:00"), Some(at("15:00:00")));
        // The clock was set right in between.
        let right = [ahead, ("apply", "2026-01-01T14:30:00.000Z")];
        assert_eq!(again(&right, "15:00:00"), Some(at("14:30:00")));
        assert_eq!(again(&[], "15:00:00"), Some(first), "a late telling");
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
