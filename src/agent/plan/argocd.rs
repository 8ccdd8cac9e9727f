//! What an Application says of itself.

use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::health::works;
use super::state::{History, Object, Observed, Probe};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{
    JITTER, PROBED_AT, PROBED_FROM, RECONCILES, REFRESH, REPO_SERVER, SKIP,
};
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::keys::sha256_hex;
use crate::wire::api::EngineKind;

mod below;

pub use below::{SYNC_ERROR, at_work, trouble};

/// An operation that has not got on for this long does not come to an end by itself.
pub(super) const STUCK: Duration = Duration::minutes(10);
/// Beyond its interval and jitter, a controller that works has looked again. One that could not fetch says nothing of that, nor of a
/// look, for three minutes (`controller/state.go`, `repoErrorGracePeriod`), but does when it is asked.
const SLACK: Duration = Duration::seconds(20);
/// With which a failed try's message goes on where there will be another one.
const AGAIN_AT: &str = ". Retrying attempt #";
/// With which the message of another try begins.
const ANEW: &str = "Retrying operation";
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
    let seen = seen.filter(|root| root.annotation(REFRESH).is_none());
    let before = seen.map(|root| root.text(LOOKED));
    json!({REFRESH: "normal", PROBED_AT: now, PROBED_FROM: before})
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

/// Whether it was met with a host key that it does not know.
pub fn doubts_host(root: &Object) -> bool {
    faults(root).any(|(class, _)| class == Class::HostKeyMismatch)
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

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What its conditions and its last operation complain of.
pub fn faults(root: &Object) -> impl Iterator<Item = (Class, String)> {
    let conditions = root.fields.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let named = conditions.filter_map(|c| {
        let text = |name: &str| c.get(name).and_then(Value::as_str).unwrap_or_default();
        let class = class(text("type"), text("message"))?;
        Some((class, format!("{}: {}", text("type"), text("message"))))
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

/// What Argo CD itself was refused, by an operation's result on one of its objects.
pub fn refused(operation: &Value) -> Option<String> {
    let results = operation.pointer("/syncResult/resources")?.as_array()?;
    let lines = results.iter().filter_map(|r| r.get("message")?.as_str());
    let mut lines = lines.flat_map(str::lines);
    let by_rights = |line: &&str| {
        line.contains(" is forbidden: ") && line.contains(":argocd-application-controller\"")
    };
    lines
        .find(by_rights)
        .map(|line| line.chars().take(500).collect())
}

fn failed(root: &Object) -> Option<(Class, String)> {
    let phase = root.text("/status/operationState/phase");
    let message = root.text("/status/operationState/message");
    (differs(&root.fields) && matches!(phase, "Failed" | "Error"))
        .then(|| (Class::ApplyFailed, format!("operation {phase}: {message}")))
}

/// Why the last try of an operation failed that Argo CD tries again. Between two tries it is one that runs and has an end
/// (`controller/appcontroller.go`, `processRequestedAppOperation`), and where there is no limit to them it never says more than that.
pub(super) fn retried(root: &Object) -> Option<(Class, String)> {
    let message = || failure(root.text("/status/operationState/message"));
    (waits(&root.fields) && is_behind(root)).then(|| (Class::ApplyFailed, message()))
}

fn failure(message: &str) -> String {
    format!("operation Failed: {}", lasting(message))
}

/// What a failed try says, but for when the next one begins: that is other words each time.
fn lasting(message: &str) -> &str {
    let said = message.split_once(AGAIN_AT);
    said.map_or(message, |(said, _)| said)
}

/// Whether an operation is at work, so that it does not say whether it will fail as before.
pub(super) fn is_trying(root: &Object) -> bool {
    is_at_it(&root.fields) && is_behind(root)
}

fn is_at_it(fields: &Value) -> bool {
    match text(fields, "/status/operationState/phase") {
        "Running" => !waits(fields),
        "Terminating" => true,
        _ => false,
    }
}

/// Whether a try has failed, and there will be another one (argo-cd, `controller/appcontroller.go`).
fn waits(fields: &Value) -> bool {
    let state = |field: &str| text(fields, &format!("/status/operationState/{field}"));
    state("phase") == "Running" && !state("finishedAt").is_empty()
}

/// Whether the try that is under way has done nothing yet that it would tell of: an operation begins without a word, and its next try
/// with these, or with what the one before said, as it was `told` then: of a long message the end is not kept.
pub(super) fn has_just_begun(root: &Object, told: &str) -> bool {
    let message = root.text("/status/operationState/message");
    let anew = message.starts_with(ANEW) || message.contains(AGAIN_AT);
    message.is_empty() || anew || failure(message) == told
}

/// How often an operation has been tried again, or will be.
pub(super) fn tries(root: &Object) -> i64 {
    root.number("/status/operationState/retryCount")
}

/// What tells a try of an operation from others.
pub(super) fn attempt(root: &Object) -> String {
    let began = root.text("/status/operationState/startedAt");
    format!("{began} {}", tries(root))
}

/// Whether the cluster is not as the catalog has it, and nothing but an operation is at fault: what cannot be compared is not applied,
/// and is told of by itself.
fn is_behind(root: &Object) -> bool {
    differs(&root.fields) && faults(root).next().is_none()
}

/// How far an operation has come, by all that an Application's status says of it and of what it applies; none = none runs.
/// Waves and slow rollouts take their time, and show it there.
pub fn reached(status: &Map<String, Value>) -> Option<String> {
    let operation = status.get("operationState")?;
    let at = |pointer: &str| operation.pointer(pointer).unwrap_or(&Value::Null);
    let resources = status.get("resources").unwrap_or(&Value::Null);
    let said = [
        at("/startedAt"),
        at("/message"),
        at("/retryCount"),
        at("/syncResult/resources"),
        resources,
    ];
    let runs = *at("/phase") == json!("Running");
    runs.then(|| sha256_hex(json!(said).to_string().as_bytes()))
}

fn is_at(root: &Object) -> Option<&str> {
    let runs = root.text("/status/operationState/phase") == "Running";
    runs.then(|| root.text("/status/operationState/reached"))
}

impl History {
    /// Notes when the root's operation was last seen to get on.
    pub(super) fn saw_operation(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        let argocd = install.traits.kind == EngineKind::Argocd;
        let root = observed.objects.get(&install.sync).filter(|_| argocd);
        let reached = root.and_then(|root| is_at(root));
        let known = self.operation.as_ref().map(|(known, _)| known.as_str());
        if reached != known {
            self.operation = reached.map(|reached| (reached.to_owned(), now));
        }
    }
}

/// An operation that goes on although it can no longer be of use.
pub fn stuck(root: &Object, now: OffsetDateTime, history: &History) -> Option<String> {
    let reached = is_at(root)?;
    let state = |field: &str| root.text(&format!("/status/operationState/{field}"));
    let tries = tries(root);
    let old = state("operation/sync/revision");
    let head = root.fields.get("status").map_or("", head);
    if tries > 0 && !old.is_empty() && !head.is_empty() && old != head {
        return Some(format!(
            "the operation tries {old} again, for the {tries}th time; the head is {head}"
        ));
    }
    let (known, since) = history.operation.as_ref()?;
    let since = parse_rfc3339(state("startedAt"))?.max(*since);
    (known == reached && now - since > STUCK).then(|| {
        format!(
            "an operation runs since {}, and has not got on since {}: {}",
            state("startedAt"),
            rfc3339(since),
            state("message")
        )
    })
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
        "ComparisonError" | "UnknownError" | "InvalidSpecError" if gave_up_on(message) => {
            Class::KeyRevoked
        }
        "ComparisonError" | "UnknownError" | "InvalidSpecError" => compared(has),
        "SyncError" | "DeletionError" => Class::ApplyFailed,
        _ => return None,
    };
    Some(class)
}

/// Whether a Git host says, in place of a refusal, that it was shown too many keys that it does not take: where one try is all, the
/// first of them is too many.
pub(super) fn gave_up_on(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    said.contains("too many authentication failures")
}

fn compared(has: impl Fn(&[&str]) -> bool) -> Class {
    if has(&["knownhosts: key is unknown", "knownhosts: key mismatch"]) {
        Class::HostKeyMismatch
    } else if has(&["unable to authenticate", "permission denied"]) {
        Class::KeyRevoked
    } else if has(&["server.secretkey"]) {
        Class::EngineSecretMissing
    } else if has(&["app path does not exist"]) {
        Class::PathMissing
    } else if has(&["signature", "not signed", "GPG"]) {
        Class::SignatureFailed
    } else if has(&["no space left"]) {
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
