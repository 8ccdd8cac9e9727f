//! The closed set of faults, and what each allows; [`super::pace`] says when.

use std::fmt;

use time::Duration;

use crate::bundle::ObjectId;

mod table;

pub use table::{About, Class};

/// A class of faults on one object.
pub type Key = (Class, ObjectId);

/// How often a step may be tried for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Only spaced: 2 s, growing to 30 s in a fight.
    Spaced,
    /// Every 2 s for as long as it is there.
    Steady,
    /// This many within an hour, then one trial per hour.
    PerHour(usize),
    /// There is no safe step: it is reported.
    Report,
}

impl Class {
    pub fn as_str(self) -> &'static str {
        self.about().name
    }

    pub fn budget(self) -> Budget {
        self.about().budget
    }

    /// How long it has to be there before it counts.
    pub fn debounce(self) -> Duration {
        self.about().debounce
    }

    /// What a person does about it, where we do not.
    pub fn advice(self) -> &'static str {
        self.about().advice
    }

    /// What is left to people once it is mended; empty = nothing.
    pub fn afterwards(self) -> &'static str {
        match self {
            Self::BadEngineCommit | Self::EngineUpgradeStuck => {
                "mend the object in the catalog: it is held back from Git until a commit does; where its commit does no harm any more, \
                 'linesman cluster lift NAME --reason TEXT' gives it back"
            }
            Self::EngineRemovedByCommit => {
                "put the object back into the catalog: it is held until a commit has it again; where the catalog is to go on without it, \
                 'linesman cluster lift NAME --reason TEXT' makes it the agent's again, if it is as the bundle has it"
            }
            Self::UndecodableObject => {
                "correct the fields that heal and condition Quarantined name, in the catalog where it comes from there: the object is \
                 suspended with a stand-in until then"
            }
            Self::SourceAltered => {
                "ask who changed what the engine follows; what should last goes through the hub; where a commit did it, mend the object in \
                 the catalog: it is held back from Git until a commit does"
            }
            _ => "",
        }
    }

    /// Whether what the catalog holds is at fault, and not the engine.
    pub fn of_catalog(self) -> bool {
        matches!(
            self,
            Self::BuildFailed
                | Self::ApplyFailed
                | Self::HealthCheckFailed
                | Self::DependencyNotReady
                | Self::PathMissing
                | Self::SignatureFailed
        )
    }

    /// Whether it leaves the engine as it has to be and at work: what it is about lies beside the engine, and may stay for
    /// good.
    pub fn is_beside(self) -> bool {
        match self {
            Self::TwoInstalls
            | Self::ClockSkew
            | Self::KubernetesUnsupported
            | Self::AgentDrift
            | Self::AgentLost
            | Self::DuplicateAgent => true,
            Self::ObjectMissing
            | Self::ServiceAccountMissing
            | Self::ScaledToZero
            | Self::BadImage
            | Self::RegistryDown
            | Self::CrashLoop
            | Self::ConfigRefMissing
            | Self::OomKilled
            | Self::HalfRolled
            | Self::ReadyButUseless
            | Self::EventSinkMissing
            | Self::QueueWedged
            | Self::LeaderStuck
            | Self::ApiUnhealthy
            | Self::CrdMissing
            | Self::CrdTerminating
            | Self::CrdStoredVersion
            | Self::UndecodableObject
            | Self::RbacAltered
            | Self::NamespaceMissing
            | Self::NamespaceTerminating
            | Self::LeftoverFinalizers
            | Self::RootDeleted
            | Self::SyncObjectsDeleted
            | Self::GitSecretBad
            | Self::HostKeyMismatch
            | Self::KeyRevoked
            | Self::GitUnreachable
            | Self::SourceAltered
            | Self::SuspendedByHuman
            | Self::SignatureFailed
            | Self::ArtifactLost
            | Self::ArtifactUnreachable
            | Self::PolicyBlocks
            | Self::WebhookBlocks
            | Self::QuotaBlocks
            | Self::PodSecurityBlocks
            | Self::Unschedulable
            | Self::BuildFailed
            | Self::ApplyFailed
            | Self::HealthCheckFailed
            | Self::DependencyNotReady
            | Self::PathMissing
            | Self::BadEngineCommit
            | Self::EngineRemovedByCommit
            | Self::EngineUpgradeStuck
            | Self::ForeignManager
            | Self::ProjectMissing
            | Self::EngineSecretMissing
            | Self::EngineConfigBroken
            | Self::OperationStuck
            | Self::RedisDown
            | Self::PodSuperseded
            | Self::ObjectAltered
            | Self::NotAvailable => false,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
