//! What an Application says of itself.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::full;
use super::health::works;
use super::state::{Child, Object, Observed, Probe};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{
    JITTER, PROBED_AT, PROBED_FROM, RECONCILES, REFRESH, REPO_SERVER, SKIP,
};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

mod below;
mod operation;

pub use below::{SYNC_ERROR, at_work, is_pending, rolls, trouble};
pub(super) use operation::{
    STUCK, attempt, given_up, has_just_begun, is_trying, retried, tries, untried, was_ended,
};
use operation::{failed, with_first};
pub use operation::{reached, refused, stuck, unapplied};

/// Beyond its interval and jitter, a controller that works has looked again. One that could not fetch says nothing of that, nor of a
/// look, for three minutes (`controller/state.go`, `repoErrorGracePeriod`), but does when it is asked.
const SLACK: Duration = Duration::seconds(20);
/// Within so long a controller looks at each Application by itself.
pub(super) const AGAIN: Duration = RECONCILES.saturating_add(JITTER).saturating_add(SLACK);
/// A controller that has just started looks anew within so long.
const STARTS: Duration = Duration::seconds(5);
/// When a controller began its last look, by its own clock, in whole seconds.
const LOOKED: &str = "/status/reconciledAt";

/// The commit that an Application's `status` says was looked at last; empty where that failed: the name of the branch
/// may then stand in the place of a commit.
pub fn head(status: &Value) -> &str {
    let head = text(status, "/sync/revision");
    if is_compared(status) { head } else { "" }
}

/// Whether the last look at an Application came to an end, by its `status`.
pub fn is_compared(status: &Value) -> bool {
    matches!(text(status, "/sync/status"), "Synced" | "OutOfSync")
}

/// The revision that a `status` names there.
pub fn revision_at(status: &Value, at: &str) -> String {
    text(status, &format!("{at}/revision")).to_owned()
}

/// The same of an Application that may have several sources: then there is a revision of each, and none in the place of the one
/// (`controller/state.go`). Together they are a text that is another one when any of them is, and no commit of a repository.
pub fn revisions_at(status: &Value, at: &str) -> String {
    let one = revision_at(status, at);
    if !one.is_empty() {
        return one;
    }
    let all = status.pointer(&format!("{at}/revisions"));
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let all: Vec<&str> = all.filter_map(Value::as_str).collect();
    if all.iter().all(|revision| revision.is_empty()) {
        return String::new();
    }
    all.join(",")
}

/// The commit that was applied last.
pub fn revision(root: &Object) -> Option<&str> {
    let head = root.text("/status/sync/revision");
    let revision = if root.text("/status/sync/status") == "Synced" && !head.is_empty() {
        head
    } else if root.text("/status/operationState/phase") == "Succeeded" {
        root.text("/status/operationState/syncResult/revision")
    } else {
        ""
    };
    (!revision.is_empty()).then_some(revision)
}

/// Whether the commit that was seen last was also tried: a commit that changes nothing needs no operation.
pub fn tried(root: &Object) -> bool {
    let head = root.text("/status/sync/revision");
    let synced = root.text("/status/sync/status") == "Synced";
    let last = root.text("/status/operationState/syncResult/revision");
    !head.is_empty() && (synced || last == head) && faults(root).next().is_none()
}

/// What asks for a look at an Application, as it was seen last; where it was not, nothing is known of the look before. Nor is it where
/// somebody has asked already: the look that comes next may have begun before this question, and takes it away all the same.
pub fn question(seen: Option<&Object>, now: &str) -> Value {
    let how = look(seen.is_some_and(doubts_signer));
    let seen = seen.filter(|root| root.annotation(REFRESH).is_none());
    let before = seen.map(|root| root.text(LOOKED));
    json!({REFRESH: how, PROBED_AT: now, PROBED_FROM: before})
}

/// How a look is asked for. What Argo CD once met in a commit's signature it keeps with what it made of that commit, and goes on
/// saying (`reposerver/repository`, `getManifestCacheEntry`): also of one that it read before anybody had to sign, and when the key
/// has come since. Only what is asked for in this way is verified anew.
pub fn look(unsigned: bool) -> &'static str {
    if unsigned { "hard" } else { "normal" }
}

/// The probe that it carries. The controller takes the annotation away with the status that it writes, whose time
/// has whole seconds. It is by another clock than ours: where that is behind, it is enough that there was another look.
pub fn probe(root: &Object) -> Option<Probe> {
    let sent = parse_rfc3339(root.annotation(PROBED_AT)?)?;
    let whole = sent.replace_nanosecond(0).ok()?;
    let before = root.annotation(PROBED_FROM);
    let another = before.is_some_and(|before| before != root.text(LOOKED));
    let has_looked = looked(root).is_some_and(|at| at >= whole || another);
    let answered = root.annotation(REFRESH).is_none() && has_looked;
    Some(Probe { sent, answered })
}

/// Whether it was looked at later than that: a refresh that waits is somebody else's, and younger.
pub fn has_looked(root: &Object, probe: Probe, now: OffsetDateTime) -> bool {
    looked(root).is_some_and(|at| at > probe.sent) && !is_stale(root, now)
}

/// Whether it took a question and gave up its look, because it did not know of the project (yet): it says so, takes the annotation
/// away, and names no time. The next look by itself comes minutes later.
pub fn gave_up(root: &Object) -> bool {
    let unanswered = probe(root).is_some_and(|probe| !probe.answered);
    unanswered
        && took_question(root)
        && faults(root).any(|(_, text)| missed_project(&text).is_some())
}

/// Whether it took the last question: what asks is gone.
pub(super) fn took_question(root: &Object) -> bool {
    root.annotation(PROBED_AT).is_some() && root.annotation(REFRESH).is_none()
}

/// Whether a question was taken with a look that may have begun before it: by the clocks it did, and nothing else is known of it.
pub(super) fn lost_question(root: &Object) -> bool {
    let unanswered = probe(root).is_some_and(|probe| !probe.answered);
    unanswered && took_question(root) && root.annotation(PROBED_FROM).is_none()
}

/// Whether the controller should have looked by itself meanwhile.
pub fn is_stale(root: &Object, now: OffsetDateTime) -> bool {
    stale_from(root).is_some_and(|at| now > at)
}

/// Until when it looks by itself if all is well.
pub fn stale_from(root: &Object) -> Option<OffsetDateTime> {
    Some(looked(root)? + AGAIN)
}

/// Whether its last look failed for a reason that lies between Argo CD's own parts and may be over.
pub fn stumbled(root: &Object) -> bool {
    faults(root).any(|(class, text)| {
        let parts = matches!(
            class,
            Class::ArtifactUnreachable | Class::RedisDown | Class::EngineSecretMissing
        );
        parts || missed_project(&text).is_some()
    })
}

/// Whether an available repo-server has no answer in the minute that it is given: what it fetches from says nothing, and
/// a look at an Application takes minutes.
pub(super) fn awaits_git(install: &Install, observed: &Observed, said: &str) -> bool {
    let id = ObjectId::new(Kind::Deployment, &install.namespace, REPO_SERVER);
    let argocd = install.traits.kind == EngineKind::Argocd;
    let up = observed.objects.get(&id).is_some_and(|live| works(live));
    argocd && up && said.contains("code = DeadlineExceeded")
}

/// Whether no connection to the repo-server came about; the other words are gRPC's where it found no address. One that broke off is
/// another matter: what was asked for may be what ends the repo-server.
pub(super) fn missed_server(said: &str) -> bool {
    let signs = ["dial tcp", "no children to pick from"];
    said.contains("code = Unavailable") && signs.iter().any(|sign| said.contains(sign))
}

/// Whether it was met with a host key that it does not know.
pub fn doubts_host(root: &Object) -> bool {
    faults(root).any(|(class, _)| class == Class::HostKeyMismatch)
}

/// Whether it refuses a commit for its signature.
pub fn doubts_signer(root: &Object) -> bool {
    faults(root).any(|(class, _)| class == Class::SignatureFailed)
}

/// The same of one below the root.
pub fn is_unsigned(child: &Child) -> bool {
    let class = |(kind, text): &(String, String)| class(kind, text);
    child.trouble.as_ref().and_then(class) == Some(Class::SignatureFailed)
}

/// Whether what is said is that a commit lacks a signature that counts (`controller/state.go`, `verifyGnuPGSignature`; since v3.5
/// `util/sourceintegrity/source_integrity.go`, `gpgProblemMessage`); operations repeat it.
fn is_refusal(message: &str) -> bool {
    [
        " is not signed, but a signature is required",
        ", but this key is not allowed in AppProject",
        ", but verification result was invalid",
        "Could not verify commit signature on revision ",
        "Failed verifying revision ",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// The project that an Application says it refers to in vain. A controller that has just started may look at one before it
/// knows of its project.
pub fn missed_project(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("referencing project ")?;
    rest.split_whitespace().next()
}

/// When its controller looked at it last.
pub fn looked(root: &Object) -> Option<OffsetDateTime> {
    parse_rfc3339(root.text(LOOKED))
}

/// What somebody does to stop an Application, as he would say it.
pub fn suspended(root: &Object) -> Option<&'static str> {
    let automated = root.fields.pointer("/spec/syncPolicy/automated");
    let automated = automated.filter(|a| !a.is_null());
    if root.annotation(SKIP) == Some("true") {
        Some("the annotation argocd.argoproj.io/skip-reconcile is set")
    } else if automated.is_none_or(|a| a.get("enabled") == Some(&Value::Bool(false))) {
        Some("spec.syncPolicy.automated is off")
    } else if is_commit(root.text("/spec/source/targetRevision")) {
        Some("spec.source.targetRevision is pinned to a commit")
    } else {
        None
    }
}

/// Whether a difference is just how somebody stopped it.
pub fn is_stop(path: &str) -> bool {
    path.starts_with("/spec/syncPolicy/automated") || path == "/spec/source/targetRevision"
}

/// Makes what is to be applied leave an Application stopped, where that is by its spec. Whether it is. Who emptied it stopped nothing.
pub(super) fn stop_as(body: &mut Value, root: &Object) -> bool {
    if root.fields.pointer("/spec/source").is_none() {
        return false;
    }
    let revision = root.text("/spec/source/targetRevision");
    let is_pinned = is_commit(revision);
    if is_pinned {
        body["spec"]["source"]["targetRevision"] = json!(revision);
    }
    let automated = root.fields.pointer("/spec/syncPolicy/automated");
    let automated = automated.filter(|a| !a.is_null());
    let is_off = automated.is_none_or(|a| a.get("enabled") == Some(&Value::Bool(false)));
    if is_off && automated.is_some() {
        body["spec"]["syncPolicy"]["automated"]["enabled"] = json!(false);
    } else if is_off {
        let policy = body.pointer_mut("/spec/syncPolicy");
        if let Some(policy) = policy.and_then(Value::as_object_mut) {
            policy.remove("automated");
        }
    }
    is_pinned || is_off
}

pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What its conditions and its last operation complain of.
pub fn faults(root: &Object) -> impl Iterator<Item = (Class, String)> {
    let conditions = root.fields.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let named = conditions.filter_map(move |c| {
        let text = |name: &str| c.get(name).and_then(Value::as_str).unwrap_or_default();
        let class = class(text("type"), text("message"))?;
        let said = format!("{}: {}", text("type"), text("message"));
        if text("type") == SYNC_ERROR {
            return Some((class, with_first(root, said)));
        }
        let commit = root.text("/status/sync/revision");
        if class == Class::SignatureFailed && !said.contains(commit) {
            return Some((class, format!("{said}; commit {commit}")));
        }
        Some((class, said))
    });
    named.chain(failed(root))
}

/// Argo CD that cannot read its settings compares nothing, and says no more of it than that neither outcome nor health are known
/// (`controller/state.go`, `getComparisonSettings`). So it does for a moment when it starts, and it takes a former complaint away
/// a moment before it says what came in its place.
pub fn unread_settings(root: &Object, now: OffsetDateTime) -> Option<&'static str> {
    let lasts = looked(root).is_some_and(|at| now - at > STARTS);
    let answers = probe(root).is_some_and(|probe| probe.answered);
    let unknown = |part: &str| root.text(&format!("/status/{part}/status")) == "Unknown";
    let conditions = root.fields.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let kind = |c: &Value| c.get("type").and_then(Value::as_str).map(str::to_owned);
    let said = conditions.any(|c| kind(c).is_some_and(|kind| kind.ends_with("Error")));
    (unknown("sync") && unknown("health") && answers && lasts && !said).then_some(
        "sync status and health Unknown, with no reason: Argo CD may not be able to read its settings",
    )
}

/// The class of a condition; none for one that is only a warning.
pub(super) fn class(kind: &str, message: &str) -> Option<Class> {
    let has = |parts: &[&str]| parts.iter().any(|p| message.contains(p));
    let class = match kind {
        "ComparisonError" | "UnknownError" | "InvalidSpecError" | "SyncError"
            if has(&[":6379"]) =>
        {
            Class::RedisDown
        }
        "ComparisonError" | "UnknownError" | "InvalidSpecError" => compared(message),
        "SyncError" => operation::class(message),
        "DeletionError" => Class::ApplyFailed,
        _ => return None,
    };
    Some(class)
}

/// Whether a Git host takes no key, in words that others begin with a large letter: OpenSSH, by which Argo CD fetches, names the ways to
/// log in that are left (`Permission denied (publickey)`), which tells it from what a file system denies; and a host may say, in
/// place of a refusal, that it was shown too many keys that it does not take: where one try is all, the first of them is too many.
pub(super) fn refuses_key(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    let words = ["permission denied (", "too many authentication failures"];
    words.iter().any(|words| said.contains(words))
}

fn compared(message: &str) -> Class {
    let has = |parts: &[&str]| parts.iter().any(|p| message.contains(p));
    if has(&[
        "knownhosts: key is unknown",
        "knownhosts: key mismatch",
        // OpenSSH's.
        "Host key verification failed",
    ]) {
        Class::HostKeyMismatch
    } else if refuses_key(message) || has(&["unable to authenticate", "permission denied"]) {
        Class::KeyRevoked
    } else if has(&["server.secretkey"]) {
        Class::EngineSecretMissing
    } else if has(&["app path does not exist"]) {
        Class::PathMissing
    } else if has(&["signature", "not signed", "GPG"]) {
        Class::SignatureFailed
    } else if full::says_so(message) {
        Class::ArtifactLost
    } else if has(&["code = Unavailable", "code = DeadlineExceeded"]) {
        Class::ArtifactUnreachable
    } else if has(&[
        "failed to list refs",
        "unable to resolve",
        "dial tcp",
        "no such host",
        "i/o timeout",
        "connection refused",
        "failed to fetch",
        "Failed to fetch",
        "failed to initialize repository",
    ]) {
        Class::GitUnreachable
    } else if has(&["failed to load initial state of resource"]) {
        Class::UndecodableObject
    } else if has(&[
        "is forbidden",
        "failed to sync cluster",
        "Failed to load live state",
    ]) {
        Class::ApplyFailed
    } else {
        Class::BuildFailed
    }
}

/// Whether the cluster is not known to be as Git has it.
fn differs(fields: &Value) -> bool {
    text(fields, "/status/sync/status") != "Synced"
}

fn text<'a>(fields: &'a Value, pointer: &str) -> &'a str {
    let text = fields.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests;
