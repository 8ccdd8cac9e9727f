//! What can be done: one action against one object.

use time::OffsetDateTime;

use crate::agent::plan::displaced::Item;
use crate::agent::plan::fault::Key;
use crate::agent::plan::find::Named;
use crate::agent::plan::quarantine::shield::Shield;
use crate::agent::plan::undecodable::aside::Turn;
use crate::bundle::ObjectId;

/// One action against one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    pub target: ObjectId,
    /// The fault that it is against; a routine probe has none.
    pub cause: Option<Key>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Server-side apply of a missing object.
    Create,
    /// The same for one that is held; `note` says why and since when.
    CreateHeld {
        note: String,
    },
    /// Server-side apply over a changed one.
    Apply,
    /// The whole object as wanted, without what others added.
    Replace,
    /// Just these of a Pod template as last known good, without what was put in their place.
    Reinstate {
        items: Vec<Item>,
    },
    /// The data of a ConfigMap as last known good, without what was added.
    Reset,
    /// Delete under this UID, then apply: for fields that cannot be changed.
    Recreate {
        uid: String,
    },
    /// The key Secret.
    WriteSecret,
    /// Delete the controller's Pods that were made before this moment.
    RestartPods {
        before: OffsetDateTime,
    },
    /// Delete the controller's Pods that have failed for good.
    DropFailed,
    /// Delete the Pods of a StatefulSet's former version that do not become ready; those that are ready go on.
    DropSuperseded,
    /// Ask its controller to reconcile now.
    Nudge,
    /// Have a controller's Pods made at once, if a dry run says that the API server takes them. Have Argo CD begin anew what it tries no
    /// more, where it is an Application.
    Retry,
    /// Take the engine's rights: delete the binding.
    CutRights {
        uid: String,
    },
    ScaleToZero,
    /// Let a controller run again that the guard stopped, and change nothing else of it.
    Start {
        replicas: i64,
    },
    /// Drop the engine's finalizers of all objects of this CRD that are being deleted, and keep what they were.
    Release,
    /// Apply again what [`Action::Release`] kept of this CRD's objects.
    Restore,
    /// Drop the engine's finalizers of this object.
    Unpin {
        keep: Vec<String>,
    },
    /// Take away the word that this object may be deleted.
    Lock,
    /// Delete the Lease of this controller.
    FreeLease {
        name: String,
        uid: String,
    },
    /// End an Application's operation.
    Terminate,
    /// Hold an object back from Git; `note` says why.
    Hold {
        note: String,
    },
    /// Give it back.
    Lift {
        note: String,
    },
    /// It works again: forget that it was held.
    Settle,
    /// The catalog no longer has it, and nothing would prune it: it is ours again, with neither the hold nor the engine's marks.
    Reclaim,
    /// Give the fields that we applied to the engine, which applies the object from Git; `commit` is the one that was refused
    /// for them, if one was.
    Relinquish {
        commit: String,
    },
    /// Write all objects of a CRD in this version, and forget the others. Where some are `named`, just those whose field managers
    /// speak of a version that is gone, if those of a named one do.
    Migrate {
        to: String,
        named: Vec<Named>,
    },
    /// Make an Application hold back from Git just this.
    Shield(Shield),
    /// Take a sync object that no controller can read out of the way, or end that.
    Aside(Turn),
}

impl Action {
    /// Whether it only puts back what is missing, asks, or keeps something from being lost: what many clusters may do at
    /// once, whatever is wrong with them.
    pub fn is_safe(&self) -> bool {
        match self {
            Self::Create
            | Self::CreateHeld { .. }
            | Self::WriteSecret
            | Self::Nudge
            | Self::Retry
            | Self::CutRights { .. }
            | Self::ScaleToZero
            | Self::Start { .. }
            | Self::Release
            | Self::Restore
            | Self::Lock => true,
            Self::Apply
            | Self::Replace
            | Self::Reinstate { .. }
            | Self::Reset
            | Self::Recreate { .. }
            | Self::RestartPods { .. }
            | Self::DropFailed
            | Self::DropSuperseded
            | Self::Unpin { .. }
            | Self::FreeLease { .. }
            | Self::Terminate
            | Self::Hold { .. }
            | Self::Lift { .. }
            | Self::Settle
            | Self::Reclaim
            | Self::Relinquish { .. }
            | Self::Migrate { .. }
            | Self::Shield(_)
            | Self::Aside(_) => false,
        }
    }

    /// Whether it mends nothing by itself.
    pub fn asks(&self) -> bool {
        matches!(self, Self::Nudge | Self::Retry)
    }

    /// Whether it only keeps Git from undoing what mends, which follows it.
    pub fn prepares(&self) -> bool {
        matches!(self, Self::Hold { .. } | Self::Shield(_))
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::CreateHeld { .. } => "create-held",
            Self::Apply => "apply",
            Self::Replace => "replace",
            Self::Reinstate { .. } => "reinstate",
            Self::Reset => "reset",
            Self::Recreate { .. } => "recreate",
            Self::WriteSecret => "write-key",
            Self::RestartPods { .. } => "restart",
            Self::DropFailed => "drop-failed",
            Self::DropSuperseded => "drop-superseded",
            Self::Nudge => "nudge",
            Self::Retry => "retry",
            Self::CutRights { .. } => "cut-rights",
            Self::ScaleToZero => "scale-to-zero",
            Self::Start { .. } => "start",
            Self::Release => "release",
            Self::Restore => "restore",
            Self::Unpin { .. } => "unpin",
            Self::Lock => "lock",
            Self::FreeLease { .. } => "free-lease",
            Self::Terminate => "terminate",
            Self::Hold { .. } => "hold",
            Self::Lift { .. } => "lift",
            Self::Settle => "settle",
            Self::Reclaim => "reclaim",
            Self::Relinquish { .. } => "relinquish",
            Self::Migrate { .. } => "migrate",
            Self::Shield(_) => "shield",
            Self::Aside(turn) => turn.what.as_str(),
        }
    }
}
