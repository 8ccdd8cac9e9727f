//! F45: beside somebody who manages the engine already, the agent only observes.

use serde_json::{Value, json};

use crate::support::audit::Mark;
use crate::support::place::{Place, run};
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};

const LABEL: &str = "app.kubernetes.io/managed-by";

/// All that the engine consists of in its namespace but for Services: what is wanted of each, and who wrote it.
pub(crate) fn objects(world: &World) -> Vec<String> {
    // Argo CD makes some of its settings and its project itself.
    let kinds = if world.engine == ARGOCD {
        "deployments,statefulsets,serviceaccounts,networkpolicies"
    } else {
        "deployments,serviceaccounts,networkpolicies,resourcequotas,secrets,configmaps,gitrepositories,kustomizations"
    };
    let text = run(world.place.kubectl().args([
        "-n",
        world.namespace(),
        "get",
        kinds,
        "-o",
        "json",
        "--show-managed-fields",
    ]));
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let told = |o: &Value| {
        let meta = &o["metadata"];
        let managers = meta["managedFields"].as_array().into_iter().flatten();
        let managers: Vec<&Value> = managers
            .filter(|m| m["subresource"].is_null())
            .map(|m| &m["manager"])
            .collect();
        let spec = [&o["spec"], &o["data"]];
        json!([o["kind"], meta["name"], meta["uid"], managers, spec]).to_string()
    };
    let mut all: Vec<String> = items.map(told).collect();
    all.sort();
    all
}

fn condition(world: &World, kind: &str) -> Option<Value> {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]).ok()?;
    let mut all = view["conditions"].as_array()?.iter();
    all.find(|c| c["type"] == json!(kind)).cloned()
}

/// Whose the engine is, as the hub shows it: the condition's reason and message, where it holds.
pub(crate) fn observed_only(world: &World) -> Option<(String, String)> {
    let told = condition(world, "ObserveOnly").filter(|c| c["status"] == "True")?;
    let text = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

/// How many of the engine's objects are there, as the hub shows it.
fn installed(world: &World) -> Option<String> {
    let told = condition(world, "EngineInstalled")?;
    told["message"].as_str().map(str::to_owned)
}

/// Sets a label on the engine's Deployments, or takes it away.
fn label(world: &World, word: &str) {
    let args = ["-n", FLUX, "label", "--overwrite", "deployments", "--all"];
    run(world.place.kubectl().args(args).arg(word));
}

/// A Flux that runs, as Helm leaves it.
fn installed_by_helm(world: &World) {
    let file = world.directory.join("helms.yaml");
    std::fs::write(&file, Place::bundle("flux")).unwrap();
    let args = ["apply", "--server-side", "--field-manager=helm", "-f"];
    run(world.place.kubectl().args(args).arg(&file));
    label(world, &format!("{LABEL}=Helm"));
    until("Helm's Flux runs", seconds(240), || {
        world.engine_available()
    });
}

/// What is taken from it is Helm's to mend: it is told and nothing is done, until the Service is put back.
fn nothing_is_mended(world: &World, mark: &Mark) {
    let services = format!("/api/v1/namespaces/{FLUX}/services");
    let path = format!("{services}/source-controller");
    let mut service = world.api.get(&path).unwrap();
    let whole = installed(world).unwrap();
    assert!(world.api.delete(&path));
    until("the hub shows that less is there", seconds(120), || {
        installed(world).is_some_and(|now| now != whole)
    });
    assert_eq!(mark.written_in(FLUX), Vec::<String>::new());
    assert_eq!(world.api.try_get(&path), Ok(None));
    for field in ["uid", "resourceVersion", "managedFields"] {
        service["metadata"].as_object_mut().unwrap().remove(field);
    }
    world.api.create(&services, &service);
}

/// Whether a step of the adoption stands still for that.
pub(crate) fn says_why(world: &World, message: &str) -> bool {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let mut steps = view["steps"].as_array().unwrap().iter();
    steps.any(|s| s["state"] == "failed" && s["reason"] == json!(message))
}

/// F45, H52: a Flux that runs and that Helm installed is left as it is, and the hub names whose it is. When Helm's mark is
/// gone, the adoption goes on.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_flux_that_helm_manages_is_only_observed_until_helm_lets_it_go() {
    let world = World::open("foreign");
    installed_by_helm(&world);
    let before = objects(&world);

    let mark = Mark::now(&world.audit);
    world.add();
    world.apply(&world.adopt);
    let ((reason, message), took) = eventually("the hub says whose it is", seconds(120), || {
        observed_only(&world).ok_or("the agent does not say that it only observes")
    });
    let what = "YAML applied beside Helm's Flux → observed only";
    figure("F45", what, "", shown(took));
    assert_eq!(reason, "ForeignManager");
    let said = "carries the mark of another manager: Helm";
    assert!(message.ends_with(said), "{message}");
    until(
        "the adoption says why it does not go on",
        seconds(60),
        || says_why(&world, &message),
    );
    nothing_is_mended(&world, &mark);
    assert_eq!(objects(&world), before);

    label(&world, &format!("{LABEL}-"));
    let (_, took) = eventually("the first revision is applied", seconds(240), || {
        world.synced()
    });
    let what = "Helm's mark gone → first revision applied";
    figure("F45", what, "", shown(took));
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "2m"];
    world.hub.linesman(&wait);
    world.function(seconds(120));
    world.close();
}
