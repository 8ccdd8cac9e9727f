//! What is a trouble of one cluster at one look: its open heals, and the conditions that are bad. Pure.

use std::collections::BTreeMap;

use super::{Seen, Severity, cut};
use crate::heal::{AGENT_LOST, DUPLICATE_AGENT, SOURCE_ALTERED};
use crate::hub::lost::fault::words;
use crate::wire::report::{Condition, ConditionType, Phase, Status};

/// What is told of the first is not told again as what comes of it; and what was told before stays as it is until that is over.
const FOLLOWS: [(&str, &[&str]); 4] = [
    (
        "HostKeyMismatch",
        &["GitUnreachable", "NotRead", "NoRoute", "NotSynced"],
    ),
    (
        "KeyRevoked",
        &["GitUnreachable", "NotRead", "NoRoute", "NotSynced"],
    ),
    ("GitUnreachable", &["NotRead", "NoRoute", "NotSynced"]),
    ("NotRead", &["NotSynced"]),
];

pub(super) struct Found {
    pub(super) severity: Severity,
    pub(super) text: String,
}

/// What a look at one cluster says.
pub(super) struct Look {
    pub(super) found: BTreeMap<String, Found>,
    /// What comes of what was found, and whether the cluster says that it is there: nothing is told of these.
    pub(super) follows: BTreeMap<&'static str, bool>,
    /// It speaks of this class alone: of the others nothing is known, or nothing is to be done now.
    pub(super) only: Option<&'static str>,
}

/// The troubles of one cluster at this moment.
pub(super) fn found(seen: &Seen) -> Look {
    let alone = |class: &'static str, severity, text: String| Look {
        found: BTreeMap::from([(class.to_owned(), Found { severity, text })]),
        follows: BTreeMap::new(),
        only: Some(class),
    };
    if seen.phase == Phase::Offline {
        return alone(AGENT_LOST, Severity::Critical, cut(&silence(seen)));
    }
    let paused = |c: &&Condition| {
        c.kind == ConditionType::Paused && c.status == Status::True && c.reason == "Maintenance"
    };
    if let Some(window) = seen.conditions.iter().find(paused) {
        // Nothing is mended in a window, and whoever opened it knows that. What is wrong behind its end is told then. What
        // the owner switched off has no end: there, all is told at once.
        return alone("Paused", Severity::Info, cut(&window.message));
    }
    let mut found = BTreeMap::new();
    for heal in &seen.heals {
        let text = cut(&format!("{}: {}", heal.object, heal.evidence));
        let severity = match heal.class.as_str() {
            // Somebody may have a copy of the cluster's keys, or would have the cluster follow him.
            DUPLICATE_AGENT | SOURCE_ALTERED => Severity::Critical,
            _ => Severity::Warning,
        };
        found
            .entry(heal.class.clone())
            .or_insert(Found { severity, text });
    }
    for condition in &seen.conditions {
        if let Some((class, severity)) = judge(condition) {
            let text = cut(&condition.message);
            let told = found.get(&class).map(|told| told.severity);
            let severity = told.map_or(severity, |told| told.max(severity));
            found.insert(class, Found { severity, text });
        }
    }
    let mut follows = BTreeMap::new();
    for (cause, classes) in FOLLOWS {
        if found.contains_key(cause) {
            for class in classes {
                let there = found.remove(*class).is_some();
                *follows.entry(*class).or_default() |= there;
            }
        }
    }
    Look {
        found,
        follows,
        only: None,
    }
}

/// Since when an agent is silent, and how its line ended.
fn silence(seen: &Seen) -> String {
    let mut line = seen.conditions.iter();
    match line.find(|c| c.kind == ConditionType::LineUp) {
        Some(line) => words(&line.since, Some(&line.message)),
        None => "the cluster is out of reach".to_owned(),
    }
}

/// Whether a condition is a trouble, under which class, and how bad it is.
fn judge(condition: &Condition) -> Option<(String, Severity)> {
    use ConditionType as C;
    let (bad, severity) = match condition.kind {
        C::HostKeyMismatch | C::RightsLost | C::JoinConflict => (Status::True, Severity::Critical),
        C::EngineHealthy | C::HubTrusted => (Status::False, Severity::Critical),
        C::Quarantined | C::SafeHealsOnly => (Status::True, Severity::Warning),
        C::ObserveOnly | C::Paused => (Status::True, Severity::Info),
        // A change that is under way is no trouble; one that was undone is.
        C::EngineCurrent | C::AgentCurrent if condition.reason == "Returned" => {
            (Status::False, Severity::Warning)
        }
        C::Synced
        | C::GitReachable
        | C::ChildrenReady
        | C::DeployKeyRegistered
        | C::HealsTaken
        | C::HubUnderstood => (Status::False, Severity::Warning),
        // An engine that is being installed is not broken; the others are shown, and call nobody.
        C::Joined
        | C::LineUp
        | C::HostKeysKnown
        | C::GitOverLine
        | C::EngineInstalled
        | C::EngineCurrent
        | C::EngineFromGit
        | C::SnapshotFresh
        | C::Guarded
        | C::AgentCurrent
        | C::PolicyAccepted
        // Whoever revoked it knows.
        | C::IdentityRevoked
        | C::Uncovered => return None,
    };
    // A rotation on its way is not a trouble.
    if condition.status != bad || condition.reason == "Rotating" {
        return None;
    }
    // These name the fault's class, which a heal may tell of as well.
    let by_reason = matches!(
        condition.kind,
        C::EngineHealthy | C::Synced | C::GitReachable | C::ChildrenReady | C::Quarantined
    );
    let class = if by_reason && !condition.reason.is_empty() {
        condition.reason.clone()
    } else {
        format!("{:?}", condition.kind)
    };
    Some((class, severity))
}
