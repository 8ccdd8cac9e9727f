//! Argo CD's applicationset-controller, which is asked with an `ApplicationSet` of ours ([`CANARY`]).
//!
//! What is relied on (argo-cd v3.2.6, `applicationset/controllers/applicationset_controller.go`; older ones do the same): it looks at
//! a set as soon as the set gets [`REFRESH_SET`], and takes that away at the end of a look that came to its end, whether anything was
//! made of the set or not. A look that fails on the way leaves it, and says so in condition `ErrorOccurred`: that is an answer, too, but
//! not one that can be told from the one before, for what is said already is not written again. So ours is not asked while it says that.
//!
//! A set of the catalog's is not asked: with its answer the controller writes all of the set, as Go has it (argo-cd#24647), and an
//! Application that brings the set would set it back each time. How long those may take counts all the same, for ours waits its turn.

use kube::core::DynamicObject;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::{Witness, looked_at};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{CANARY, PARAMS, PROBED_AT, REFRESH_SET};
use crate::agent::plan::project;
use crate::agent::plan::shard::Shard;
use crate::agent::plan::state::{Object, Observed, Probe};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

/// For what a generator fetches from Git: the repo-server has a minute (`--repo-server-timeout-seconds`), and may be asked again.
const FETCH: Duration = Duration::minutes(3);
/// For a generator that asks somebody whose pace nobody here knows.
const ELSEWHERE: Duration = Duration::minutes(10);
/// What is added for each set: when its controller starts it looks at all of them, by default at ten at once. This is for one that
/// fetches.
const TURN: Duration = Duration::seconds(6);
/// The same for one that does not.
const BRIEF: Duration = Duration::SECOND;

/// Takes the place of the flag; in the manifests its value is that of a key in [`PARAMS`].
const DRY_RUN: &str = "ARGOCD_APPLICATIONSET_CONTROLLER_DRY_RUN";

/// So many it looks at at once, unless it was told otherwise.
const WORKERS: usize = 10;
/// What tells it otherwise, and what has it look at those of other namespaces, of which nobody here knows: its arguments, its
/// environment, and the keys in [`PARAMS`].
const ARGUMENTS: [&str; 2] = [
    "--concurrent-reconciliations",
    "--applicationset-namespaces",
];
const VARIABLES: [&str; 2] = [
    "ARGOCD_APPLICATIONSET_CONTROLLER_CONCURRENT_RECONCILIATIONS",
    "ARGOCD_APPLICATIONSET_CONTROLLER_NAMESPACES",
];
const SETTINGS: [&str; 2] = [
    "applicationsetcontroller.concurrent.reconciliations.max",
    "applicationsetcontroller.namespaces",
];

pub(super) fn of(live: &DynamicObject) -> Witness {
    let ours = live.metadata.name.as_deref() == Some(CANARY);
    let goes = live.metadata.deletion_timestamp.is_some();
    Witness {
        fit: ours && !goes && !is_true(live, "ErrorOccurred"),
        probe: probe(live),
        served: served(live),
        takes: takes(live.data.pointer("/spec/generators")),
        shard: Shard::default(),
        blinds: None,
    }
}

/// Whether there is a worker for ours, whatever the others take: there are fewer of them than workers.
pub(super) fn has_worker(install: &Install, observed: &Observed) -> bool {
    let kind = Kind::ApplicationSet;
    let all = looked_at(install, observed, kind).count();
    let controller = install.controller(&ObjectId::new(kind, "", ""));
    let controller = observed.objects.get(&controller);
    let told = controller.is_some_and(|live| is_told_otherwise(install, observed, live));
    all <= WORKERS && !observed.crowds.contains_key(&kind) && !told
}

fn is_told_otherwise(install: &Install, observed: &Observed, controller: &Object) -> bool {
    let params = params(install, observed);
    let is_set =
        |key: &&str| params.is_some_and(|map| !map.text(&format!("/data/{key}")).is_empty());
    SETTINGS.iter().any(is_set)
        || containers(controller).any(|container| {
            let mut args = arguments(container);
            let mut env = list(container, "env");
            args.any(|arg| ARGUMENTS.iter().any(|name| arg.starts_with(name)))
                || env.any(|entry| {
                    let name = entry.get("name").and_then(Value::as_str);
                    // Where it is taken from a key in that ConfigMap, the key says it.
                    let said = entry.get("value").is_some();
                    said && name.is_some_and(|name| VARIABLES.contains(&name))
                })
        })
}

/// How long all of them are waited for beside the longest look.
pub(super) fn turns<'a>(all: impl Iterator<Item = &'a Witness>) -> Duration {
    let turn = |one: &Witness| if one.takes.is_zero() { BRIEF } else { TURN };
    all.map(turn).fold(Duration::ZERO, Duration::saturating_add)
}

/// Whether the controller was told to write nothing: then it takes no question away either.
pub(in crate::agent::plan) fn only_looks(
    install: &Install,
    observed: &Observed,
    controller: &Object,
) -> bool {
    let params = params(install, observed);
    let said = params.map_or("", |map| map.text("/data/applicationsetcontroller.dryrun"));
    said.eq_ignore_ascii_case("true") || containers(controller).any(is_told_so)
}

fn params<'a>(install: &Install, observed: &'a Observed) -> Option<&'a Object> {
    let params = ObjectId::new(Kind::ConfigMap, &install.namespace, PARAMS);
    observed.objects.get(&params).map(AsRef::as_ref)
}

fn containers(controller: &Object) -> impl Iterator<Item = &Value> {
    let all = controller.fields.pointer("/spec/template/spec/containers");
    all.and_then(Value::as_array).into_iter().flatten()
}

fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    let all = ["command", "args"];
    let all = all.into_iter().flat_map(move |name| list(container, name));
    all.filter_map(Value::as_str)
}

fn list<'a>(container: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let all = container.get(name).and_then(Value::as_array);
    all.into_iter().flatten()
}

/// Whether a container's arguments or environment tell it to.
fn is_told_so(container: &Value) -> bool {
    let mut args = arguments(container);
    let mut env = list(container, "env");
    // As Go's `strconv.ParseBool` takes it.
    args.any(|arg| {
        let said = arg.strip_prefix("--dry-run");
        matches!(
            said,
            Some("" | "=true" | "=True" | "=TRUE" | "=t" | "=T" | "=1")
        )
    }) || env.any(|entry| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let value = text("value").unwrap_or_default();
        text("name") == Some(DRY_RUN) && value.eq_ignore_ascii_case("true")
    })
}

/// How long a look may take, by what its generators ask.
fn takes(generators: Option<&Value>) -> Duration {
    let all = generators.and_then(Value::as_array).into_iter().flatten();
    let parts = all.filter_map(Value::as_object).flatten();
    parts.fold(Duration::ZERO, |sum, (name, said)| {
        let time = match name.as_str() {
            // Of the API server alone, and watched there; the last one only chooses among the others' results.
            "list" | "clusters" | "clusterDecisionResource" | "selector" => Duration::ZERO,
            "git" => FETCH,
            "matrix" | "merge" => takes(said.get("generators")),
            // A host of repositories or pull requests, a plugin, or what is not known here.
            _ => ELSEWHERE,
        };
        sum.saturating_add(time)
    })
}

/// The question that it carries, be it ours or a person's; else the last one of ours. The time of another's is the API server's.
fn probe(live: &DynamicObject) -> Option<Probe> {
    let annotations = live.metadata.annotations.as_ref()?;
    let asked = annotations.get(PROBED_AT);
    let asked = asked.and_then(|at| parse_rfc3339(at));
    let answered = !annotations.contains_key(REFRESH_SET);
    if answered {
        return asked.map(|sent| Probe { sent, answered });
    }
    let entries = live.metadata.managed_fields.iter().flatten();
    let asking = entries.filter(|entry| project::sets(entry, "f:annotations", REFRESH_SET));
    let sent = asking.filter_map(|entry| {
        if project::sets(entry, "f:annotations", PROBED_AT) {
            asked
        } else {
            entry.time.as_ref().and_then(project::at)
        }
    });
    let sent = sent.max().or(asked)?;
    Some(Probe { sent, answered })
}

/// When its controller last had something new to say of it.
fn served(live: &DynamicObject) -> Option<OffsetDateTime> {
    let said = ["/status/conditions", "/status/applicationStatus"];
    let said = said
        .into_iter()
        .filter_map(|at| live.data.pointer(at)?.as_array());
    let times = said.flatten().filter_map(|one| {
        let at = one.get("lastTransitionTime")?.as_str()?;
        parse_rfc3339(at)
    });
    times.max()
}

fn is_true(live: &DynamicObject, condition: &str) -> bool {
    let all = live.data.pointer("/status/conditions");
    let mut all = all.and_then(Value::as_array).into_iter().flatten();
    all.any(|one| {
        let text = |name: &str| one.get(name).and_then(Value::as_str);
        text("type") == Some(condition) && text("status") == Some("True")
    })
}
