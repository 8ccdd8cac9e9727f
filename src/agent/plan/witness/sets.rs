//! Argo CD's applicationset-controller, which is asked with an `ApplicationSet` beside it.
//!
//! What is relied on (argo-cd v3.2.6, `applicationset/controllers/applicationset_controller.go`; older ones do the same): it looks at
//! a set as soon as the set gets [`REFRESH_SET`], and takes that away at the end of a look that came to its end. A look that fails on
//! the way leaves it, and says so in condition `ErrorOccurred`: that is an answer, too, but not one that can be told from the one
//! before, for what is said already is not written again. So only a set is asked that came to its end last.
//!
//! As it takes a question away it writes all of the set, as Go has it (argo-cd#24647): each generator gets a `template`, and what is
//! `false` or empty goes. Git has it otherwise, so that an Application which brings the set would set it back after each question, for
//! ever. So only a set is asked that stays as it is, or that somebody else has asked already.

use kube::core::DynamicObject;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::{OFTEN, Witness};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{PARAMS, PROBED_AT, REFRESH_SET};
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

pub(super) fn of(live: &DynamicObject) -> Witness {
    let (fits, takes) = looks(live.data.pointer("/spec/generators"));
    let done = is_true(live, "ResourcesUpToDate") && !is_true(live, "ErrorOccurred");
    let may = is_asked(live) || stays(live);
    Witness {
        fit: fits && done && may && live.metadata.deletion_timestamp.is_none(),
        probe: probe(live),
        served: served(live),
        takes,
        shard: Shard::default(),
    }
}

/// How long the sets of which one may be asked are waited for beside the longest look.
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
    let params = ObjectId::new(Kind::ConfigMap, &install.namespace, PARAMS);
    let params = observed.objects.get(&params);
    let said = params.map_or("", |map| map.text("/data/applicationsetcontroller.dryrun"));
    let containers = controller.fields.pointer("/spec/template/spec/containers");
    let mut containers = containers.and_then(Value::as_array).into_iter().flatten();
    said.eq_ignore_ascii_case("true") || containers.any(is_told_so)
}

/// The same of a container's arguments and environment.
fn is_told_so(container: &Value) -> bool {
    let list = |name: &str| container.get(name).and_then(Value::as_array);
    let args = ["command", "args"].into_iter().filter_map(list).flatten();
    let mut args = args.filter_map(Value::as_str);
    let mut env = list("env").into_iter().flatten();
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

/// What its generators ask: whether one may be asked to (nothing is asked anywhere that would not be within minutes), and how long
/// that may take.
fn looks(generators: Option<&Value>) -> (bool, Duration) {
    let all = generators.and_then(Value::as_array).into_iter().flatten();
    let parts = all.filter_map(Value::as_object).flatten();
    parts.fold((true, Duration::ZERO), |(fits, takes), (name, said)| {
        let (fit, time) = match name.as_str() {
            // Of the API server alone, and watched there; the last one only chooses among the others' results.
            "list" | "clusters" | "selector" => (true, Duration::ZERO),
            "clusterDecisionResource" => (is_often(said), Duration::ZERO),
            "git" => (is_often(said), FETCH),
            "matrix" | "merge" => looks(said.get("generators")),
            // A host of repositories or pull requests, a plugin, or what is not known here.
            _ => (false, ELSEWHERE),
        };
        (fits && fit, takes.saturating_add(time))
    })
}

/// Whether it is looked at about as often as it would be asked: every three minutes where it does not say.
fn is_often(generator: &Value) -> bool {
    let every = generator.get("requeueAfterSeconds").and_then(Value::as_i64);
    every.is_none_or(|every| (1..=OFTEN.whole_seconds()).contains(&every))
}

fn is_asked(live: &DynamicObject) -> bool {
    let annotations = live.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(REFRESH_SET))
}

/// Whether its controller, which writes all of it, changes nothing with that.
fn stays(live: &DynamicObject) -> bool {
    let generators = live.data.pointer("/spec/generators");
    let spec = live.data.get("spec").and_then(Value::as_object);
    let mut parts = spec.into_iter().flatten();
    is_written_out(generators, false) && !parts.any(|(name, said)| is_left_out(name, said))
}

/// Whether each generator has what Go writes of it also where there is none. One that is in two others (`nested`) is kept as it is.
fn is_written_out(generators: Option<&Value>, nested: bool) -> bool {
    let all = generators.and_then(Value::as_array).into_iter().flatten();
    let mut parts = all.filter_map(Value::as_object).flatten();
    parts.all(|(name, said)| {
        let has = |part: &str| said.get(part).is_some();
        match name.as_str() {
            "selector" => true,
            "clusters" => has("template") && has("selector"),
            "clusterDecisionResource" => has("template") && has("labelSelector"),
            "matrix" | "merge" if nested => true,
            "matrix" | "merge" => has("template") && is_written_out(said.get("generators"), true),
            _ => has("template"),
        }
    })
}

/// Whether Go leaves out something of this, as it does with most that is `false` or empty. What it keeps of that is taken for left out,
/// too.
fn is_left_out(name: &str, said: &Value) -> bool {
    match said {
        Value::Null => true,
        Value::Bool(said) => !said,
        Value::Number(said) => said.as_i64() == Some(0),
        Value::String(said) => said.is_empty() && name != "project",
        // As they were written.
        Value::Array(_) | Value::Object(_) if matches!(name, "elements" | "valuesObject") => false,
        Value::Array(all) => {
            let mut parts = all.iter().filter_map(Value::as_object).flatten();
            all.is_empty() || parts.any(|(name, said)| is_left_out(name, said))
        }
        Value::Object(all) => all.iter().any(|(name, said)| is_left_out(name, said)),
    }
}

/// The question that it carries, be it ours or that of a webhook; else the last one of ours. The time of another's is the API server's.
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
