//! What the roots say is wrong, and whether that is of now.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::agent::engine::Install;
use crate::agent::engine::argocd::SKIP;
use crate::agent::plan::fault::Class;
use crate::agent::plan::find::Finding;
use crate::agent::plan::quarantine::root::SUSPEND;
use crate::agent::plan::state::{History, Object};
use crate::agent::plan::{argocd, full, redis};
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

/// A repo-server has loaded the signers' keys by then, and Argo CD has been asked anew what it says of a head that it read before.
const LOADS: Duration = Duration::seconds(30);

/// What a root says is wrong. Of one that is suspended that is old; but Flux' controllers answer for it as for any other.
pub(super) fn complained(
    now: OffsetDateTime,
    install: &Install,
    history: &History,
    (id, live): (&ObjectId, &Object),
    found: &mut Vec<Finding>,
) {
    if live.fields.pointer(SUSPEND) == Some(&Value::Bool(true)) {
        return;
    }
    match install.traits.kind {
        EngineKind::Flux => {
            let mends = found.iter().any(|f| f.object == install.secret);
            let old = mends || !is_said_anew(history, live);
            let new = said(live);
            let recalled = new.is_none();
            let words = new.or_else(|| history.complained(id, live));
            let said = words.map(|(class, text)| Finding {
                // What is done about a Secret is done to that.
                reported: class == Class::GitSecretBad,
                recalled,
                ..Finding::new(class, id, text)
            });
            found.extend(said.filter(|f| f.class != Class::GitSecretBad || !old));
        }
        EngineKind::Argocd => application(now, install, history, (id, live), found),
    }
}

/// What a root complains of, whoever is to blame.
pub(in crate::agent::plan) fn complaints(install: &Install, live: &Object) -> Vec<(Class, String)> {
    match install.traits.kind {
        EngineKind::Flux => said(live).into_iter().collect(),
        EngineKind::Argocd => argocd::faults(live).collect(),
    }
}

/// What a root of Flux' says that it is not ready for.
pub(in crate::agent::plan) fn said(live: &Object) -> Option<(Class, String)> {
    let (status, reason, message) = live.condition("Ready")?;
    let class = root_fault(reason, message).filter(|_| status == "False")?;
    Some((class, format!("{reason}: {message}")))
}

/// Whether a root has looked since something was last written: until then its words may be about what was before that.
fn is_said_anew(history: &History, root: &Object) -> bool {
    let looked = root.probe().filter(|p| p.answered).map(|p| p.sent);
    history.last_write.is_none_or(|at| looked >= Some(at))
}

/// Whether what a root says is of a look that is over, and of nothing before the last write. One that is suspended is not looked at.
pub(in crate::agent::plan) fn has_ended(
    install: &Install,
    history: &History,
    root: &Object,
) -> bool {
    let over = match install.traits.kind {
        EngineKind::Flux => {
            let ready = root.condition("Ready");
            let suspended = root.fields.pointer(SUSPEND) == Some(&Value::Bool(true));
            !suspended && ready.is_some_and(|(status, _, _)| status != "Unknown")
        }
        EngineKind::Argocd => {
            let runs = root.text("/status/operationState/phase") == "Running";
            // Between two tries it says what the one before came to.
            let rests = !runs || argocd::retried(root).is_some();
            rests && root.annotation(SKIP) != Some("true")
        }
    };
    over && root.deleting.is_none() && is_said_anew(history, root)
}

/// What the root Application says.
fn application(
    now: OffsetDateTime,
    install: &Install,
    history: &History,
    (id, live): (&ObjectId, &Object),
    found: &mut Vec<Finding>,
) {
    if let Some(text) = argocd::stuck(live, now, history) {
        found.push(Finding::new(Class::OperationStuck, id, text));
    }
    if let Some(text) = argocd::unread_settings(live, now) {
        let mut finding = Finding::new(Class::EngineConfigBroken, id, text);
        // Which settings these are it does not say; they have a finding of their own.
        finding.reported = true;
        found.push(finding);
    }
    let loads = history.host_keys.is_some_and(|at| now - at < LOADS);
    let said = argocd::faults(live).chain(argocd::retried(live));
    let said = said.filter(|(class, _)| !loads || *class != Class::SignatureFailed);
    let said = said.map(|(class, text)| (class, text, false));
    let before = history.complained(id, live);
    let before = before.map(|(class, text)| (class, text, true));
    for (class, text, recalled) in said.chain(before) {
        let about = redis::blamed(install, class, id);
        if !found.iter().any(|f| f.class == class && f.object == about) {
            let mut finding = Finding::new(class, &about, text);
            // It names a kind, and no object.
            finding.reported = class == Class::UndecodableObject;
            finding.recalled = recalled;
            found.push(finding);
        }
    }
}

/// The class of a sync object's failure, by its reason and, for Git, by its message.
pub(in crate::agent::plan) fn root_fault(reason: &str, message: &str) -> Option<Class> {
    let has = |parts: &[&str]| parts.iter().any(|p| message.contains(p));
    let class = match reason {
        "GitOperationFailed" => {
            if has(&[
                "knownhosts: key is unknown",
                "knownhosts: key mismatch",
                "host key",
            ]) {
                Class::HostKeyMismatch
            } else if has(&[
                "unable to authenticate",
                "permission denied",
                "authorization failed",
            ]) || argocd::refuses_key(message)
            {
                Class::KeyRevoked
            } else if full::says_so(message) {
                Class::ArtifactLost
            } else {
                Class::GitUnreachable
            }
        }
        // It found no key that it could have offered: the Git host was not asked.
        "AuthenticationFailed" => Class::GitSecretBad,
        "VerificationError" | "InvalidCommitSignature" => Class::SignatureFailed,
        "DirectoryCreationFailed"
        | "StatOperationFailed"
        | "AcquireLockFailed"
        | "ArchiveOperationFailed"
        | "SymlinkUpdateFailed" => Class::ArtifactLost,
        // Its own volume, in which it unpacks and builds.
        "ArtifactFailed" | "BuildFailed" if full::says_so(message) => Class::ArtifactLost,
        "ArtifactFailed" if has(&["path not found", "no such file"]) => Class::PathMissing,
        "ArtifactFailed" if has(&["not found", "not ready", "is not ready"]) => return None,
        "ArtifactFailed" => Class::ArtifactUnreachable,
        "BuildFailed" if has(&["path not found"]) => Class::PathMissing,
        "BuildFailed" => Class::BuildFailed,
        "ReconciliationFailed" | "PruneFailed" | "InvalidCELExpression" => Class::ApplyFailed,
        // Canceled by the next try before all was well.
        "HealthCheckFailed" | "HealthCheckCanceled" => Class::HealthCheckFailed,
        "DependencyNotReady" => Class::DependencyNotReady,
        _ => return None,
    };
    Some(class)
}
