//! What hangs on objects that other controllers than the roots' take care of: `HelmRelease`s of helm-controller, and Applications
//! that an `ApplicationSet` made and that are collected as garbage when it goes; Applications without the policy; and an agent that is
//! killed while the guard is at work. For `make chaos` only (W11, W34, W44).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::unguarded::second_line;
use super::{
    LABEL, OBJECTS, Sync, assert_kept, brought, crd_of, cut, goes_on, gone, kept, removed, runs,
    workloads,
};
use crate::healing::{LIMIT, settle};
use crate::support::argocd::application;
use crate::support::audit::Mark;
use crate::support::place::Place;
use crate::support::world::{self, ARGOCD, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COUNT: usize = 50;

/// What the catalog brings, and what has to be there of it but for the workloads.
struct Hung {
    crd: &'static str,
    files: Vec<(String, String)>,
    there: Vec<String>,
}

/// W11: 50 `HelmRelease`s, each of which uninstalls its four objects when it goes.
#[test]
#[ignore = "takes minutes: make chaos"]
fn no_workload_is_uninstalled_when_the_crd_of_the_helm_releases_is_deleted() {
    let mut world = World::open_from("helmcascade", "flux", &Place::bundle("flux-helm"));
    world.adopt();
    nothing_is_lost(&world, &releases());
    world.close();
}

/// W34: 50 Applications of one `ApplicationSet`, each of which prunes its four objects when it goes.
#[test]
#[ignore = "takes minutes: make chaos"]
fn no_workload_is_pruned_when_the_crd_of_the_application_sets_is_deleted() {
    let world = world::adopted_argocd();
    nothing_is_lost(&world, &set(&world));
}

/// W11, W34, guard policy off: 50 Applications whose finalizer prunes.
#[test]
#[ignore = "takes minutes: make chaos"]
fn the_second_line_alone_keeps_what_the_applications_brought() {
    let world = world::adopted_argocd();
    let (crd, sync) = crd_of(&world);
    brought(&world, &sync);
    let outcome = second_line(&world, crd, &sync);
    removed(&world, &sync);
    outcome.judged();
}

/// W44; that the agent was away for a day is in `make test`.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_agent_killed_in_the_middle_goes_on_with_the_guard() {
    goes_on(&world::adopted());
}

const CHART: &str = "apiVersion: v2\nname: maps\nversion: 0.1.0\n";

/// Of one chart, which lies in the catalog.
fn releases() -> Hung {
    let maps = format!(
        "{{{{- range $n := until {} }}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
         name: {{{{ $.Release.Name }}}}-{{{{ $n }}}}\n  labels: {{{LABEL}: \"true\"}}\n{{{{- end }}}}\n",
        OBJECTS / COUNT
    );
    let chart = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
        "metadata": {"name": "maps", "namespace": FLUX},
        "spec": {
            "interval": "10m", "chart": "./cascade/maps",
            "sourceRef": {"kind": "GitRepository", "name": FLUX},
        },
    });
    let release = |name: String| {
        json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name, "namespace": FLUX},
            "spec": {
                "interval": "10m", "releaseName": name, "targetNamespace": "default",
                "chartRef": {"kind": "HelmChart", "name": "maps"},
                "install": {"remediation": {"retries": 5}},
            },
        })
    };
    let all = [chart].into_iter().chain(names().map(release));
    let all: Vec<String> = all.map(|object| object.to_string()).collect();
    let of_api = format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{FLUX}/helmreleases");
    Hung {
        crd: "helmreleases.helm.toolkit.fluxcd.io",
        files: vec![
            ("cascade/maps/Chart.yaml".to_owned(), CHART.to_owned()),
            ("cascade/maps/templates/maps.yaml".to_owned(), maps),
            (file(), all.join("\n---\n")),
        ],
        there: names().map(|name| format!("{of_api}/{name}")).collect(),
    }
}

/// The catalog's own source for all, a directory of it for each.
fn set(world: &World) -> Hung {
    let mut spec = world.api.get(&application("base")).unwrap()["spec"].clone();
    spec["source"]["path"] = json!("cascade/{{name}}");
    spec["destination"]["namespace"] = json!("default");
    let elements: Vec<Value> = names().map(|name| json!({ "name": name })).collect();
    let set = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "cascade", "namespace": ARGOCD},
        "spec": {
            "generators": [{"list": {"elements": elements}}],
            "template": {
                "metadata": {
                    "name": "{{name}}",
                    "finalizers": ["resources-finalizer.argocd.argoproj.io"],
                },
                "spec": spec,
            },
        },
    });
    let maps = |name: String| {
        let maps = (0..OBJECTS / COUNT).map(|n| {
            let meta = json!({
                "name": format!("{name}-{n}"), "namespace": "default", "labels": {LABEL: "true"},
            });
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta }).to_string()
        });
        let maps = maps.collect::<Vec<_>>().join("\n---\n");
        (format!("cascade/{name}/maps.yaml"), maps)
    };
    let of_set = format!("/apis/argoproj.io/v1alpha1/namespaces/{ARGOCD}/applicationsets/cascade");
    let mut files: Vec<_> = names().map(maps).collect();
    files.push((file(), set.to_string()));
    Hung {
        crd: "applicationsets.argoproj.io",
        files,
        there: names()
            .map(|name| application(&name))
            .chain([of_set])
            .collect(),
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..COUNT).map(Sync::name)
}

fn file() -> String {
    format!("clusters/{CLUSTER}/cascade.yaml")
}

fn nothing_is_lost(world: &World, hung: &Hung) {
    settle(world);
    world.push_all(&hung.files);
    whole(world, hung);
    let crd = format!("{CRDS}/{}", hung.crd);
    let all: Vec<Run> = (1..=runs())
        .map(|number| deleted(world, &crd, hung, number))
        .collect();
    tell(world, hung, &all);
    world.push(&file(), "# nothing\n");
    until("the catalog's objects are gone", seconds(600), || {
        workloads(world).is_empty()
    });
    settle(world);
    let lost: usize = all.iter().map(|run| run.lost).sum();
    let with_loss = all.iter().filter(|run| run.lost > 0).count();
    let told = format!("{lost} objects were lost in {with_loss} of {} runs", runs());
    assert_kept(lost, with_loss, &told);
}

/// All of it is there, and each of what they hang on has said that it is done: only then would it take them along.
fn whole(world: &World, hung: &Hung) {
    until("200 workload objects are there", seconds(600), || {
        workloads(world).len() == OBJECTS
    });
    let done = |path: &String| {
        let live = world.api.try_get(path).ok().flatten().unwrap_or_default();
        match live["kind"].as_str().unwrap_or_default() {
            "HelmRelease" => world::ready(&live),
            "Application" => live["status"]["sync"]["status"] == json!("Synced"),
            kind => kind == "ApplicationSet",
        }
    };
    until("what they hang on is done", seconds(600), || {
        hung.there.iter().all(done)
    });
}

struct Run {
    lost: usize,
    cut: Duration,
    back: Duration,
}

fn deleted(world: &World, crd: &str, hung: &Hung, number: usize) -> Run {
    whole(world, hung);
    settle(world);
    let (before, uid) = (workloads(world), world.uid(crd).unwrap());
    assert_eq!(before.len(), OBJECTS);
    let mark = Mark::now(&world.audit);
    let began = Instant::now();
    world.delete_guarded(crd);
    until("the CRD is a new one", seconds(LIMIT), || {
        world.uid(crd).is_some_and(|new| new != uid)
    });
    until("what they hang on is back", seconds(LIMIT), || {
        hung.there.iter().all(|path| world.uid(path).is_some())
    });
    let back = began.elapsed();
    let (cut, _) = eventually("the audit log tells of both", seconds(30), || {
        cut(&mark, crd).ok_or("it does not")
    });
    settle(world);
    // What was lost comes again as another one; garbage is collected by now.
    whole(world, hung);
    let lost = gone(&before, &workloads(world)).len();
    println!(
        "run {number}: {lost} of {OBJECTS} lost, rights cut after {:.3} s, all back {}",
        cut.as_secs_f64(),
        shown(back)
    );
    Run { lost, cut, back }
}

fn tell(world: &World, hung: &Hung, all: &[Run]) {
    let kind = hung.crd.split('.').next().unwrap();
    let lost: usize = all.iter().map(|run| run.lost).sum();
    let what = format!(
        "{} times CRD {kind} deleted under {OBJECTS} objects, deletion allowed: objects lost",
        all.len()
    );
    figure("W11", &world.said(&what), "", lost);
    let case = |end: &str| world.said(&format!("… CRD deleted → {end} ({kind})"));
    kept(
        &case("runs in which each UID stayed"),
        all.iter().filter(|run| run.lost > 0).count(),
    );
    let sorted = |of: fn(&Run) -> Duration| {
        let mut of: Vec<Duration> = all.iter().map(of).collect();
        of.sort_unstable();
        (of[all.len() / 2], of[all.len() - 1])
    };
    let (median, slowest) = sorted(|run| run.cut);
    figure(
        "W11",
        &case("the engine has no rights to prune: median, slowest"),
        "",
        format!("{} ms, {} ms", median.as_millis(), slowest.as_millis()),
    );
    let (median, slowest) = sorted(|run| run.back);
    figure(
        "W11",
        &case("all sync objects back: median, slowest"),
        "≤ 120 s",
        format!("{}, {}", shown(median), shown(slowest)),
    );
}
