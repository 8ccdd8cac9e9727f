//! The closed set of faults, and what each allows; [`super::pace`] says when.

use std::fmt;

use time::Duration;

use crate::bundle::ObjectId;

/// A class of faults on one object.
pub type Key = (Class, ObjectId);

/// What can be wrong, and with it what may be done. A class without a safe step is reported, never hammered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    ObjectMissing,
    ServiceAccountMissing,
    ScaledToZero,
    BadImage,
    RegistryDown,
    CrashLoop,
    ConfigRefMissing,
    OomKilled,
    ReadyButUseless,
    QueueWedged,
    ApiUnhealthy,
    CrdMissing,
    CrdTerminating,
    RbacAltered,
    NamespaceMissing,
    NamespaceTerminating,
    LeftoverFinalizers,
    RootDeleted,
    GitSecretBad,
    HostKeyMismatch,
    KeyRevoked,
    GitUnreachable,
    SourceAltered,
    SuspendedByHuman,
    SignatureFailed,
    ArtifactLost,
    ArtifactUnreachable,
    WebhookBlocks,
    QuotaBlocks,
    PodSecurityBlocks,
    Unschedulable,
    BuildFailed,
    ApplyFailed,
    HealthCheckFailed,
    DependencyNotReady,
    PathMissing,
    ForeignManager,
    /// A field of ours differs on an object that has no class of its own.
    ObjectAltered,
    /// A controller is not available, and nothing says why.
    NotAvailable,
}

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
        match self {
            Self::ObjectMissing => "ObjectMissing",
            Self::ServiceAccountMissing => "ServiceAccountMissing",
            Self::ScaledToZero => "ScaledToZero",
            Self::BadImage => "BadImage",
            Self::RegistryDown => "RegistryDown",
            Self::CrashLoop => "CrashLoop",
            Self::ConfigRefMissing => "ConfigRefMissing",
            Self::OomKilled => "OomKilled",
            Self::ReadyButUseless => "ReadyButUseless",
            Self::QueueWedged => "QueueWedged",
            Self::ApiUnhealthy => "ApiUnhealthy",
            Self::CrdMissing => "CrdMissing",
            Self::CrdTerminating => "CrdTerminating",
            Self::RbacAltered => "RbacAltered",
            Self::NamespaceMissing => "NamespaceMissing",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::LeftoverFinalizers => "LeftoverFinalizers",
            Self::RootDeleted => "RootDeleted",
            Self::GitSecretBad => "GitSecretBad",
            Self::HostKeyMismatch => "HostKeyMismatch",
            Self::KeyRevoked => "KeyRevoked",
            Self::GitUnreachable => "GitUnreachable",
            Self::SourceAltered => "SourceAltered",
            Self::SuspendedByHuman => "SuspendedByHuman",
            Self::SignatureFailed => "SignatureFailed",
            Self::ArtifactLost => "ArtifactLost",
            Self::ArtifactUnreachable => "ArtifactUnreachable",
            Self::WebhookBlocks => "WebhookBlocks",
            Self::QuotaBlocks => "QuotaBlocks",
            Self::PodSecurityBlocks => "PodSecurityBlocks",
            Self::Unschedulable => "Unschedulable",
            Self::BuildFailed => "BuildFailed",
            Self::ApplyFailed => "ApplyFailed",
            Self::HealthCheckFailed => "HealthCheckFailed",
            Self::DependencyNotReady => "DependencyNotReady",
            Self::PathMissing => "PathMissing",
            Self::ForeignManager => "ForeignManager",
            Self::ObjectAltered => "ObjectAltered",
            Self::NotAvailable => "NotAvailable",
        }
    }

    pub fn budget(self) -> Budget {
        match self {
            Self::ObjectMissing
            | Self::CrdMissing
            | Self::NamespaceMissing
            | Self::RootDeleted
            | Self::ServiceAccountMissing
            | Self::GitSecretBad => Budget::Spaced,
            Self::CrdTerminating | Self::NamespaceTerminating => Budget::Steady,
            Self::ScaledToZero
            | Self::BadImage
            | Self::CrashLoop
            | Self::OomKilled
            | Self::ReadyButUseless
            | Self::RbacAltered
            | Self::SourceAltered
            | Self::ObjectAltered
            | Self::NotAvailable => Budget::PerHour(5),
            Self::QueueWedged | Self::LeftoverFinalizers => Budget::PerHour(3),
            Self::RegistryDown
            | Self::ConfigRefMissing
            | Self::ApiUnhealthy
            | Self::HostKeyMismatch
            | Self::KeyRevoked
            | Self::GitUnreachable
            | Self::SuspendedByHuman
            | Self::SignatureFailed
            | Self::ArtifactLost
            | Self::ArtifactUnreachable
            | Self::WebhookBlocks
            | Self::QuotaBlocks
            | Self::PodSecurityBlocks
            | Self::Unschedulable
            | Self::BuildFailed
            | Self::ApplyFailed
            | Self::HealthCheckFailed
            | Self::DependencyNotReady
            | Self::PathMissing
            | Self::ForeignManager => Budget::Report,
        }
    }

    /// How long it has to be there before it counts.
    pub fn debounce(self) -> Duration {
        let seconds = match self {
            Self::ObjectMissing
            | Self::ServiceAccountMissing
            | Self::BadImage
            | Self::ReadyButUseless
            | Self::CrdMissing
            | Self::CrdTerminating
            | Self::RbacAltered
            | Self::NamespaceMissing
            | Self::NamespaceTerminating
            | Self::RootDeleted
            | Self::GitSecretBad
            | Self::SourceAltered
            | Self::SuspendedByHuman
            | Self::ForeignManager
            | Self::QueueWedged
            | Self::LeftoverFinalizers
            | Self::ObjectAltered => 0,
            Self::HostKeyMismatch | Self::KeyRevoked | Self::SignatureFailed => 10,
            Self::RegistryDown
            | Self::CrashLoop
            | Self::ConfigRefMissing
            | Self::OomKilled
            | Self::WebhookBlocks
            | Self::QuotaBlocks
            | Self::PodSecurityBlocks => 20,
            Self::ScaledToZero | Self::Unschedulable | Self::ApiUnhealthy => 30,
            Self::GitUnreachable
            | Self::ArtifactLost
            | Self::ArtifactUnreachable
            | Self::BuildFailed
            | Self::ApplyFailed
            | Self::HealthCheckFailed
            | Self::DependencyNotReady
            | Self::PathMissing
            | Self::NotAvailable => 60,
        };
        Duration::seconds(seconds)
    }

    /// What a person does about it, where we do not.
    pub fn advice(self) -> &'static str {
        match self {
            Self::ObjectMissing
            | Self::ServiceAccountMissing
            | Self::ScaledToZero
            | Self::BadImage
            | Self::ReadyButUseless
            | Self::QueueWedged
            | Self::CrdMissing
            | Self::CrdTerminating
            | Self::RbacAltered
            | Self::NamespaceMissing
            | Self::NamespaceTerminating
            | Self::LeftoverFinalizers
            | Self::RootDeleted
            | Self::GitSecretBad
            | Self::SourceAltered
            | Self::ObjectAltered => "",
            Self::RegistryDown => "make the image's registry reachable from the cluster's nodes",
            Self::CrashLoop => "read the controller's log; its objects are as last known good",
            Self::ConfigRefMissing => "create the object that the container refers to",
            Self::OomKilled => "raise the controller's memory limit",
            Self::ApiUnhealthy => {
                "mend the cluster's API server; nothing is healed until it answers"
            }
            Self::HostKeyMismatch => {
                "compare the fingerprints; if the Git host's key was changed on purpose, \
                                      change it at the hub"
            }
            Self::KeyRevoked => {
                "register the cluster's deploy key at the Git host again: 'linesman cluster readopt'"
            }
            Self::GitUnreachable => "make the Git host reachable from the cluster",
            Self::SuspendedByHuman => {
                "ask who suspended it, then resume it: set spec.suspend to false, or use 'flux resume'"
            }
            Self::SignatureFailed => "sign the catalog's head commit with a known key",
            Self::ArtifactLost | Self::ArtifactUnreachable => {
                "look at source-controller's log and its Service"
            }
            Self::WebhookBlocks => {
                "mend or remove the admission webhook that refuses the engine's Pods"
            }
            Self::QuotaBlocks => "raise the ResourceQuota of the engine's namespace",
            Self::PodSecurityBlocks => {
                "allow the engine's Pods in its namespace's Pod Security level"
            }
            Self::Unschedulable => "make room on a node for the engine's Pods",
            Self::BuildFailed | Self::ApplyFailed => {
                "mend the catalog: the message names the file or object"
            }
            Self::HealthCheckFailed | Self::DependencyNotReady => {
                "look at the object that the message names"
            }
            Self::PathMissing => "commit the directory that it names to the catalog",
            Self::ForeignManager => {
                "decide who manages the engine: remove the other manager, or this cluster's \
                                     adoption"
            }
            Self::NotAvailable => "look at the controller's Pods and Events",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
