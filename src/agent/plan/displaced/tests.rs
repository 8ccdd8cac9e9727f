use super::*;
use crate::agent::engine::GIT_OWNER;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::tests::{Cluster, desired_of, install_of};
use crate::agent::plan::{Action, Class, Plan, Step};
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

mod owned;

fn controller() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller")
}

/// With one controller that Git owns and that has a volume, as it was last known good.
fn owned_by_git() -> Cluster {
    let (kind, id) = (EngineKind::Flux, controller());
    let mut good = install_of(kind).wanted[&id].expect.as_ref().clone();
    good["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    let pod = good.pointer_mut(POD).unwrap();
    pod["volumes"] = json!([{"name": "data"}, {"name": "temp", "emptyDir": {}}]);
    let container = &mut pod["containers"][0];
    container["env"] = json!([{"name": "LOG", "value": "info"}]);
    container["livenessProbe"] =
        json!({"httpGet": {"path": "/healthz", "port": "healthz"}, "periodSeconds": 10});
    container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}});
    good["spec"]["strategy"] = json!({"type": "Recreate"});
    let owner = Some(Mending::default());
    let install = Install::new(&desired_of(kind), &[(id, good)].into(), owner);
    Cluster::working_with(install)
}

fn temp() -> Item {
    Item::Volume("temp".to_owned())
}

fn log() -> Item {
    Item::Variable {
        list: "containers",
        container: "manager".to_owned(),
        name: "LOG".to_owned(),
    }
}

fn liveness() -> Item {
    Item::Handler {
        list: "containers",
        container: "manager".to_owned(),
        call: "/livenessProbe",
    }
}

fn stopping() -> Item {
    Item::Handler {
        list: "containers",
        container: "manager".to_owned(),
        call: "/lifecycle/preStop",
    }
}

/// What somebody writes over a controller that goes on with its old Pod; of `emptied` the engine then owns the name alone.
fn written(cluster: &mut Cluster, by: &str, emptied: &[Item], change: impl Fn(&mut Value)) {
    let now = cluster.now;
    let live = cluster.objects.get_mut(&controller()).unwrap();
    change(live.fields.pointer_mut(POD).unwrap());
    live.generation += 1;
    live.fields["status"]["observedGeneration"] = json!(live.generation);
    by.clone_into(&mut live.writer);
    live.written = Some(now);
    live.emptied = emptied.to_vec();
}

fn volume_is_another(pod: &mut Value) {
    pod["volumes"][1] = json!({"name": "temp", "configMap": {"name": "nobody"}});
}

fn done(plan: &Plan) -> Vec<(Class, &Action)> {
    let steps = plan.steps.iter().filter_map(|step| {
        let (class, _) = step.cause.as_ref()?;
        Some((*class, &step.action))
    });
    steps.collect()
}

/// W8: the old Pod serves, so nothing else shows it; and nobody but the agent can mend it.
#[test]
fn a_volume_of_another_type_is_mended_although_git_owns_the_controller_and_it_works() {
    let mut cluster = owned_by_git();
    written(&mut cluster, "kubectl-patch", &[temp()], volume_is_another);
    let plan = cluster.round();
    let items = vec![temp()];
    assert_eq!(
        done(&plan),
        [(Class::ObjectAltered, &Action::Reinstate { items })]
    );
    let said = &plan.findings[0];
    let text = "differs at /spec/template/spec/volumes/temp; beside what was put there, server-side apply of the catalog's \
                version is refused";
    assert_eq!(
        (said.evidence.as_str(), said.writer.as_str()),
        (text, "kubectl-patch")
    );
    cluster.settle(20);
    let volumes = &cluster.objects[&controller()].fields["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[1], json!({"name": "temp", "emptyDir": {}}));
}

/// W8: the same with a variable; other fields are put back by Git itself, once it can.
#[test]
fn a_variable_of_another_type_is_mended_and_all_else_left_to_git() {
    let mut cluster = owned_by_git();
    written(&mut cluster, "kubectl-edit", &[log()], |pod| {
        pod["containers"][0]["env"][0] =
            json!({"name": "LOG", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        pod["containers"][0]["args"] = json!(["--b"]);
    });
    let plan = cluster.round();
    let items = vec![log()];
    assert_eq!(
        done(&plan),
        [(Class::ReadyButUseless, &Action::Reinstate { items })]
    );
    let at = "/spec/template/spec/containers/manager/env/LOG";
    assert!(
        plan.findings[0]
            .evidence
            .starts_with(&format!("differs at {at};"))
    );
}

/// W8: the API server says "may not specify more than 1 handler type" to the engine.
#[test]
fn a_probe_of_another_kind_is_mended_and_what_else_was_set_of_it_left() {
    let mut cluster = owned_by_git();
    let items = vec![liveness(), stopping()];
    written(&mut cluster, "kubectl-patch", &items, |pod| {
        let container = &mut pod["containers"][0];
        container["livenessProbe"] =
            json!({"tcpSocket": {"port": "healthz"}, "periodSeconds": 10, "timeoutSeconds": 7});
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep", "5"]}}});
    });
    let plan = cluster.round();
    assert_eq!(
        done(&plan),
        [(Class::ObjectAltered, &Action::Reinstate { items })]
    );
    let at = "differs at /spec/template/spec/containers/manager/livenessProbe, \
              /spec/template/spec/containers/manager/lifecycle/preStop; beside";
    let said = &plan.findings[0].evidence;
    assert!(said.starts_with(at), "{said}");
}

/// W8: the API server says "may not be specified when strategy `type` is 'Recreate'" to the engine.
#[test]
fn a_strategy_that_leaves_its_parameters_in_the_way_is_mended() {
    let mut cluster = owned_by_git();
    let items = vec![Item::Strategy("strategy")];
    written(&mut cluster, "kubectl-patch", &items, |_| ());
    let live = cluster.objects.get_mut(&controller()).unwrap();
    live.fields["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}});
    let plan = cluster.round();
    assert_eq!(
        done(&plan),
        [(Class::ObjectAltered, &Action::Reinstate { items })]
    );
    cluster.settle(20);
    let strategy = &cluster.objects[&controller()].fields["spec"]["strategy"];
    assert_eq!(*strategy, json!({"type": "Recreate"}));
}

/// The engine puts these back itself.
#[test]
fn a_probe_or_strategy_that_stands_in_nobodys_way_is_left() {
    let probe = |probe: Value| {
        let mut cluster = owned_by_git();
        written(&mut cluster, "kubectl-patch", &[liveness()], |pod| {
            pod["containers"][0]["livenessProbe"] = probe.clone();
        });
        cluster.plan().findings
    };
    let gone = Value::Null;
    let other_path = json!({"httpGet": {"path": "/", "port": "healthz"}, "timeoutSeconds": 7});
    assert_eq!([probe(gone), probe(other_path)], [vec![], vec![]]);
    let strategy = |good: Value, now: Value| {
        let mut cluster = owned_by_git();
        let wanted = cluster.install.wanted.get_mut(&controller()).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        expect["spec"]["strategy"] = good;
        wanted.expect = expect.into();
        let items = [Item::Strategy("strategy")];
        written(&mut cluster, "kubectl-patch", &items, |_| ());
        let live = cluster.objects.get_mut(&controller()).unwrap();
        live.fields["spec"]["strategy"] = now;
        cluster.plan().findings
    };
    let rolls = |surge: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge}});
    let recreates = json!({"type": "Recreate"});
    for (good, now) in [
        (rolls(1), recreates),
        (rolls(1), rolls(2)),
        (json!({"rollingUpdate": {"maxSurge": 1}}), rolls(2)),
        (Value::Null, rolls(1)),
    ] {
        assert_eq!(strategy(good.clone(), now.clone()), [], "{good} {now}");
    }
}

/// W22, W23: a commit may change the type, and people may write what Git can put back.
#[test]
fn what_the_engine_itself_put_there_or_can_put_back_is_left() {
    let nothing = |pod: &mut Value| pod["labels"] = json!({"a": "b"});
    let emptied = |pod: &mut Value| {
        let item = pod["volumes"][1].as_object_mut().unwrap();
        item.remove("emptyDir");
    };
    for (what, by, items, change) in [
        (
            "a commit, then a person elsewhere",
            "kubectl",
            vec![],
            volume_is_another as fn(&mut Value),
        ),
        (
            "a commit",
            "kustomize-controller",
            vec![],
            volume_is_another,
        ),
        ("nothing there differs", "kubectl", vec![temp()], nothing),
        ("it is merely taken away", "kubectl", vec![temp()], emptied),
    ] {
        let mut cluster = owned_by_git();
        written(&mut cluster, by, &items, change);
        let plan = cluster.plan();
        let found: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(found, [], "{what}");
    }
}

/// What another admission refuses is replaced as a whole, as where the agent owns it.
#[test]
fn where_it_is_refused_the_whole_spec_is_put_in_its_place() {
    let mut cluster = owned_by_git();
    written(&mut cluster, "kubectl-patch", &[temp()], volume_is_another);
    let step = Step {
        action: Action::Reinstate {
            items: vec![temp()],
        },
        target: controller(),
        cause: Some((Class::ObjectAltered, controller())),
    };
    let refused = Outcome::Refused("x".to_owned());
    let observed = cluster.observed();
    let history = &mut cluster.history;
    history.acted(cluster.now, &step, &refused, &observed);
    cluster.now += time::Duration::seconds(30);
    assert_eq!(
        done(&cluster.plan()),
        [(Class::ObjectAltered, &Action::Replace)]
    );
}

#[test]
fn each_container_has_its_own_place_in_the_patch() {
    let mut cluster = owned_by_git();
    let wanted = cluster.install.wanted.get_mut(&controller()).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    let log = |value: &str| json!({"name": "LOG", "value": value});
    let container = |name: &str| json!({"name": name, "env": [log(name)]});
    let names = ["manager", "proxy", "third"];
    expect.pointer_mut(POD).unwrap()["containers"] = names.map(container).into_iter().collect();
    wanted.expect = expect.into();
    let items = names.map(|container| Item::Variable {
        list: "containers",
        container: container.to_owned(),
        name: "LOG".to_owned(),
    });
    let each = names.map(|name| {
        let mut variable = log(name);
        variable["$retainKeys"] = json!(["name", "value"]);
        json!({"name": name, "env": [variable]})
    });
    let expected = json!({"spec": {"template": {"spec": {"containers": each}}}});
    assert_eq!(patch(wanted, &items), expected);
}

#[test]
fn the_patch_names_what_is_to_stay_of_each_item_and_nothing_else() {
    let cluster = owned_by_git();
    let wanted = &cluster.install.wanted[&controller()];
    let volume = json!({"name": "temp", "emptyDir": {}, "$retainKeys": ["emptyDir", "name"]});
    let variable = json!({"name": "LOG", "value": "info", "$retainKeys": ["name", "value"]});
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": "healthz"},
        "exec": null, "tcpSocket": null, "grpc": null, "sleep": null,
    });
    let stop = json!({
        "sleep": {"seconds": 5}, "exec": null, "tcpSocket": null, "grpc": null, "httpGet": null,
    });
    let strategy = json!({"type": "Recreate", "rollingUpdate": null});
    let all = [
        temp(),
        log(),
        liveness(),
        stopping(),
        Item::Strategy("strategy"),
    ];
    assert_eq!(
        patch(wanted, &all),
        json!({"spec": {"strategy": strategy, "template": {"spec": {
            "volumes": [volume],
            "containers": [{
                "name": "manager", "env": [variable], "livenessProbe": probe,
                "lifecycle": {"preStop": stop},
            }],
        }}}})
    );
}
