//! What each condition makes of a cluster while it is not as it should be.

use super::super::word::Word;
use super::{Condition, ConditionType, Status};

/// How much that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The cluster is in this phase, unless something worse stands above it.
    Conflict,
    Broken,
    Degraded,
    Paused,
    /// It is shown, and a check of `doctor` fails; the cluster is as healthy as it was.
    Noted,
}

impl ConditionType {
    /// In which status it is not as it should be, and how much that counts; `None` = both are well.
    pub fn bad(self) -> Option<(Status, Weight)> {
        Some(match self {
            Self::JoinConflict => (Status::True, Weight::Conflict),
            Self::EngineHealthy => (Status::False, Weight::Broken),
            Self::RightsLost => (Status::True, Weight::Broken),
            Self::Joined
            | Self::LineUp
            | Self::DeployKeyRegistered
            | Self::HostKeysKnown
            | Self::GitReachable
            | Self::EngineCurrent
            | Self::Synced
            | Self::ChildrenReady
            | Self::Guarded
            | Self::AgentCurrent
            | Self::PolicyAccepted
            | Self::HealsTaken
            | Self::HubUnderstood
            | Self::HubTrusted => (Status::False, Weight::Degraded),
            Self::HostKeyMismatch
            | Self::Quarantined
            | Self::Uncovered
            | Self::IdentityRevoked => (Status::True, Weight::Degraded),
            Self::ObserveOnly | Self::Paused => (Status::True, Weight::Paused),
            // An object that the engine misses is a fault, and `EngineHealthy` says so: a version may do without one, and
            // another manager has others.
            Self::EngineInstalled
            // Of the last attempt; `GitReachable` says so of what lasts.
            | Self::GitOverLine
            // There is none in the first minutes, and the engine is mended from its bundle until then.
            | Self::SnapshotFresh => (Status::False, Weight::Noted),
            // The owner's choice, or the hub's while other clusters are in trouble.
            Self::SafeHealsOnly => (Status::True, Weight::Noted),
            // Whoever installs the engine.
            Self::EngineFromGit => return None,
        })
    }
}

/// What is said of a condition: its kind, its status and the reason.
pub type Said<'a> = (ConditionType, Status, &'a str);

/// How much it counts that each condition of one cluster is as it is, in their order; `None` = it is as it should be, or is not
/// known.
pub fn weights<'a>(
    conditions: impl Iterator<Item = Option<Said<'a>>> + Clone,
) -> impl Iterator<Item = Option<Weight>> {
    let observed = (ConditionType::ObserveOnly, Status::True);
    let mut all = conditions.clone().flatten();
    let observed = all.any(|(kind, status, _)| (kind, status) == observed);
    conditions.map(move |said| weight(said?, observed))
}

/// `observed`: another manager has the engine.
fn weight((kind, status, reason): Said<'_>, observed: bool) -> Option<Weight> {
    let (bad, weight) = kind.bad()?;
    if status != bad {
        return None;
    }
    match (kind, reason) {
        // Beside another manager the agent puts nothing into the cluster, its guard neither.
        (ConditionType::Guarded, _) if observed => None,
        // Nothing that is wrong: such an API server knows no such policies, or the adoption YAML gives no right to them; and the
        // owner lists a namespace before it is made.
        (ConditionType::Guarded, "NotServed") | (ConditionType::Uncovered, "NamespaceMissing") => {
            Some(Weight::Noted)
        }
        _ => Some(weight),
    }
}

impl Condition {
    /// For [`weights`].
    pub fn said(&self) -> Option<Said<'_>> {
        Some((self.kind, self.status, self.reason.as_str()))
    }
}

impl Condition<Word<ConditionType>, Word<Status>> {
    /// For [`weights`]; `None` = in words of a later build.
    pub fn known(&self) -> Option<Said<'_>> {
        let (kind, status) = (*self.kind.known()?, *self.status.known()?);
        Some((kind, status, self.reason.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::ConditionType as C;
    use super::*;

    fn weighed(conditions: &[Said<'_>]) -> Vec<Option<Weight>> {
        weights(conditions.iter().copied().map(Some)).collect()
    }

    #[test]
    fn a_condition_counts_while_it_is_not_as_it_should_be() {
        let said = [
            (C::Synced, Status::False, "NotSynced"),
            (C::Synced, Status::True, "Synced"),
            (C::Synced, Status::Unknown, "Unproven"),
            (C::EngineHealthy, Status::False, "CrashLoop"),
            (C::EngineInstalled, Status::False, "ObjectsMissing"),
            (C::EngineFromGit, Status::True, "FromGit"),
            (C::Guarded, Status::False, "Missing"),
            (C::Guarded, Status::False, "NotServed"),
            (C::Uncovered, Status::True, "NamespaceMissing"),
        ];
        let (degraded, noted) = (Some(Weight::Degraded), Some(Weight::Noted));
        let expected = [
            degraded,
            None,
            None,
            Some(Weight::Broken),
            noted,
            None,
            degraded,
            noted,
            noted,
        ];
        assert_eq!(weighed(&said), expected);
        let later = [None, Some(said[0])];
        let counted: Vec<_> = weights(later.into_iter()).collect();
        assert_eq!(counted, [None, degraded], "words of a later build");
    }

    #[test]
    fn beside_another_manager_no_guard_is_missed() {
        let unguarded = (C::Guarded, Status::False, "Missing");
        let broken = (C::EngineHealthy, Status::False, "CrashLoop");
        let (weighs, paused) = (Some(Weight::Broken), Some(Weight::Paused));
        for (observes, guarded, observed) in [
            (Status::True, None, paused),
            (Status::False, Some(Weight::Degraded), None),
            (Status::Unknown, Some(Weight::Degraded), None),
        ] {
            let said = [unguarded, broken, (C::ObserveOnly, observes, "")];
            assert_eq!(weighed(&said), [guarded, weighs, observed], "{observes:?}");
        }
    }
}
