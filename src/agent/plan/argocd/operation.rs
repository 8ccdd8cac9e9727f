//! What an operation of an Application says of itself: how far it is, why its last try failed, whether there will be another one.

use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::{SYNC_ERROR, differs, faults, head, is_refusal, suspended, text};
use crate::agent::engine::Install;
use crate::agent::plan::fault::Class;
use crate::agent::plan::scene;
use crate::agent::plan::state::{History, Object, Observed};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::keys::sha256_hex;
use crate::wire::api::EngineKind;

/// An operation that has not got on for this long does not come to an end by itself.
pub(in crate::agent::plan) const STUCK: Duration = Duration::minutes(10);
/// Whether each try of an operation looks at the branch anew.
const REFRESHES: &str = "/status/operationState/operation/retry/refresh";
/// With which a failed try's message goes on where there will be another one.
const AGAIN_AT: &str = ". Retrying attempt #";
/// With which the message of another try begins.
pub(super) const ANEW: &str = "Retrying operation";

/// With which a condition begins that says that a commit is not tried again; in older versions with the other.
const GIVEN_UP: [&str; 2] = ["Failed last sync attempt to ", "Failed sync attempt to "];
/// With which the message of an operation that was ended begins (gitops-engine, `Terminate`), and what it says more where Argo CD did it.
const ENDED: &str = "Operation terminat";
const BY_ITSELF: &str = "triggered by ";

/// Where what an operation says of itself ends, and what it could not apply is named.
const FIRST: &str = "; first failed: ";

/// What an operation could not apply first, by its results: `Deployment apps/web: why`. What it says of itself may name nothing.
pub fn unapplied(operation: &Value) -> Option<String> {
    let results = operation.pointer("/syncResult/resources")?.as_array()?;
    let mut results = results.iter();
    let first = results.find(|result| text(result, "/status") == "SyncFailed")?;
    let (kind, name) = (text(first, "/kind"), text(first, "/name"));
    let place = match text(first, "/namespace") {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    };
    let why = text(first, "/message").lines().next().unwrap_or_default();
    let told = format!("{kind} {place}: {why}");
    Some(told.chars().take(300).collect())
}

/// What a root says of its operation, with what that could not apply first. Why is said once.
pub(super) fn with_first(root: &Object, said: String) -> String {
    let first = root.text("/status/operationState/unapplied");
    let (place, why) = first.split_once(": ").unwrap_or((first, ""));
    if first.is_empty() {
        said
    } else if said.contains(why) {
        format!("{said}{FIRST}{place}")
    } else {
        format!("{said}{FIRST}{place}: {why}")
    }
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

pub(super) fn failed(root: &Object) -> Option<(Class, String)> {
    let phase = root.text("/status/operationState/phase");
    let message = root.text("/status/operationState/message");
    let says = || with_first(root, format!("operation {phase}: {message}"));
    (differs(&root.fields) && matches!(phase, "Failed" | "Error")).then(|| (class(message), says()))
}

/// What a failed operation is called: one that a commit's signature ended has applied nothing.
pub(super) fn class(message: &str) -> Class {
    if is_refusal(message) {
        Class::SignatureFailed
    } else {
        Class::ApplyFailed
    }
}

/// Why the last try of an operation failed that Argo CD tries again. Between two tries it is one that runs and has an end
/// (`controller/appcontroller.go`, `processRequestedAppOperation`), and where there is no limit to them it never says more than that.
pub(in crate::agent::plan) fn retried(root: &Object) -> Option<(Class, String)> {
    let message = root.text("/status/operationState/message");
    let says = || with_first(root, failure(message));
    (waits(&root.fields) && is_behind(root)).then(|| (class(message), says()))
}

fn failure(message: &str) -> String {
    format!("operation Failed: {}", lasting(message))
}

/// What a failed try says, but for when the next one begins: that is other words each time.
pub(super) fn lasting(message: &str) -> &str {
    let said = message.split_once(AGAIN_AT);
    said.map_or(message, |(said, _)| said)
}

/// Whether an operation is at work, so that it does not say whether it will fail as before.
pub(in crate::agent::plan) fn is_trying(root: &Object) -> bool {
    (is_at_it(&root.fields) || is_about_to(root)) && is_behind(root)
}

/// Whether what was known of its last operation was taken away, as it is where the next one is asked for (argo-cd, `SetAppOperation`).
fn is_about_to(root: &Object) -> bool {
    root.text("/status/operationState/phase").is_empty() && is_out_of_sync(root)
}

fn is_out_of_sync(root: &Object) -> bool {
    root.text("/status/sync/status") == "OutOfSync"
}

pub(super) fn is_at_it(fields: &Value) -> bool {
    match text(fields, "/status/operationState/phase") {
        "Running" => !waits(fields),
        "Terminating" => true,
        _ => false,
    }
}

/// Whether a try has failed, and there will be another one (argo-cd, `controller/appcontroller.go`).
pub(super) fn waits(fields: &Value) -> bool {
    let state = |field: &str| text(fields, &format!("/status/operationState/{field}"));
    state("phase") == "Running" && !state("finishedAt").is_empty()
}

/// Whether the try that is under way has done nothing yet that it would tell of: an operation begins without a word, and its next try
/// with these, or with what the one before said, as it was `told` then: of a long message the end is not kept.
pub(in crate::agent::plan) fn has_just_begun(root: &Object, told: &str) -> bool {
    let message = root.text("/status/operationState/message");
    let anew = message.starts_with(ANEW) || message.contains(AGAIN_AT);
    // Its own results it does not have yet.
    let told = told.split_once(FIRST).map_or(told, |(said, _)| said);
    // On record it is one line, without passwords.
    let plain = |text: &str| scene::line(&scene::masked(text));
    let same = || plain(&failure(message)) == plain(told);
    message.is_empty() || anew || same()
}

/// How often an operation has been tried again, or will be.
pub(in crate::agent::plan) fn tries(root: &Object) -> i64 {
    root.number("/status/operationState/retryCount")
}

/// What tells a try of an operation from others.
pub(in crate::agent::plan) fn attempt(root: &Object) -> String {
    let began = root.text("/status/operationState/startedAt");
    format!("{began} {}", tries(root))
}

/// The commit that the cluster is not at, where nothing is done about that: the last operation was of another one, nobody stopped the
/// Application, and it says of nothing that it is wrong. Where another operation is asked for, the last one is forgotten with that.
pub(in crate::agent::plan) fn untried(root: &Object) -> Option<&str> {
    let commit = root.fields.get("status").map_or("", head);
    let rests = root.text("/status/operationState/phase") == "Succeeded";
    let last = root.text("/status/operationState/syncResult/revision");
    let waits = rests && is_out_of_sync(root) && is_behind(root) && suspended(root).is_none();
    (waits && !commit.is_empty() && commit != last).then_some(commit)
}

/// When an operation ended that Argo CD begins no more: it failed, and of each commit there is one. So Argo CD says itself when it looks
/// next (`controller/appcontroller.go`, `autoSync`).
pub(in crate::agent::plan) fn given_up(root: &Object) -> Option<OffsetDateTime> {
    let phase = root.text("/status/operationState/phase");
    let conditions = root.fields.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let says = |message: &str| GIVEN_UP.iter().any(|words| message.starts_with(words));
    let said = conditions.any(|c| text(c, "/type") == SYNC_ERROR && says(text(c, "/message")));
    let is = matches!(phase, "Failed" | "Error") && is_out_of_sync(root) && said;
    let ended = root.text("/status/operationState/finishedAt");
    parse_rfc3339(ended).filter(|_| is)
}

/// Whether somebody ended its last operation, and not Argo CD for the time that it took.
pub(in crate::agent::plan) fn was_ended(root: &Object) -> bool {
    let message = root.text("/status/operationState/message");
    message.starts_with(ENDED) && !message.contains(BY_ITSELF)
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
    pub(in crate::agent::plan) fn saw_operation(
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

/// Whether the next try is of the branch as it is by then, or this one is of the head already. Either way the operation goes on naming the
/// commit that it began with, and ended now it would have tried the head, which Argo CD then does not try again.
fn follows(root: &Object, head: &str) -> bool {
    let refreshes = root.fields.pointer(REFRESHES) == Some(&Value::Bool(true));
    refreshes || root.text("/status/operationState/syncResult/revision") == head
}

/// An operation that goes on although it can no longer be of use.
pub fn stuck(root: &Object, now: OffsetDateTime, history: &History) -> Option<String> {
    let reached = is_at(root)?;
    let state = |field: &str| root.text(&format!("/status/operationState/{field}"));
    let tries = tries(root);
    let old = state("operation/sync/revision");
    let head = root.fields.get("status").map_or("", head);
    let is_old = !old.is_empty() && !head.is_empty() && old != head;
    if tries > 0 && is_old && !follows(root, head) {
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
