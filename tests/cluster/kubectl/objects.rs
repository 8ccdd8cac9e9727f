//! Reads and writes of every kind: what kubectl shows and does is what it would be without the hub.

use std::fs;

use serde_json::{Value, json};

use super::{NAMESPACE, ready};
use crate::support::place::{output, run};
use crate::support::world::{self, World};

/// L1: what is read is, byte by byte, what the API server says directly.
#[test]
#[ignore = "needs a real cluster: make test"]
fn reads_are_the_same_as_without_the_hub() {
    reads_are_the_same(&world::adopted());
}

/// Whatever kubectl reads, both ways.
pub(super) fn reads_are_the_same(world: &World) {
    ready(world);
    for args in [
        &["version", "-o", "json"][..],
        &["api-resources", "-o", "name"],
        &["explain", "deployment.spec.strategy"],
        &["get", "--raw", "/openapi/v3/apis/apps/v1"],
        &["get", "--raw", "/openapi/v2"],
        &["get", "crds", "-o", "yaml"],
        &["get", "namespaces", "--show-labels", "--no-headers"],
        &["get", "services", "-A", "-o", "wide", "--no-headers"],
        &["get", "pods", "-n", "kube-system", "--chunk-size=1"],
        &["get", "clusterroles", "-l", "!x", "-o", "json"],
        &["get", "--raw", "/api/v1/namespaces/none"],
        &["get", "pods", "-n", NAMESPACE, "none"],
        &["describe", "serviceaccounts", "-n", NAMESPACE],
        &["auth", "can-i", "--list", "-n", NAMESPACE, "--no-headers"],
    ] {
        let (direct, line) = (
            output(world.place.kubectl().args(args)),
            output(world.through_line().args(args)),
        );
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(direct.status, line.status, "{args:?}");
        // Ages tick, and rights are the user's own.
        if !args.contains(&"--no-headers") {
            assert!(direct.stdout == line.stdout, "{args:?} differs");
        }
        assert_eq!(text(&direct.stderr), text(&line.stderr), "{args:?}");
    }
}

/// kubectl through the line in our namespace; it must succeed.
fn line(world: &World, args: &str) -> String {
    let words: Vec<&str> = args.split(' ').collect();
    run(world.through_line().args(["-n", NAMESPACE]).args(words))
}

fn map(world: &World, name: &str) -> Option<Value> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}");
    world.api.get(&path).map(|map| map["data"].clone())
}

/// A file with a `ConfigMap` of that data.
fn file(world: &World, name: &str, data: &Value) -> String {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let file = world.directory.join(format!("{name}.json"));
    fs::write(&file, object.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// L1: every kind of write, and the deletions.
#[test]
#[ignore = "needs a real cluster: make test"]
fn writes_of_every_kind_take_effect() {
    writes_work(&world::adopted());
}

/// Whatever kubectl writes.
pub(super) fn writes_work(world: &World) {
    ready(world);
    let applied = file(world, "a", &json!({"x": "1"}));
    for args in [
        format!("apply -f {applied}"),
        format!("apply --server-side --force-conflicts -f {applied}"),
        r#"patch configmap a --type=merge -p {"data":{"m":"2"}}"#.to_owned(),
        r#"patch configmap a --type=json -p [{"op":"add","path":"/data/j","value":"3"}]"#
            .to_owned(),
        r#"patch configmap a --type=strategic -p {"data":{"s":"4"}}"#.to_owned(),
    ] {
        line(world, &args);
    }
    let all = json!({"x": "1", "m": "2", "j": "3", "s": "4"});
    assert_eq!(map(world, "a"), Some(all));
    let other = file(world, "a", &json!({"y": "5"}));
    line(world, &format!("replace -f {other}"));
    assert_eq!(map(world, "a"), Some(json!({"y": "5"})));
    line(world, "label configmap a colour=red");
    line(world, "create configmap b --from-literal=k=v");
    assert_eq!(map(world, "b"), Some(json!({"k": "v"})));
    line(world, "delete configmap a b");
    assert_eq!(map(world, "a"), None);
    line(world, "create configmap c");
    line(
        world,
        "delete configmaps --field-selector metadata.name!=kube-root-ca.crt",
    );
    assert_eq!(map(world, "c"), None);
    // A write that the API server refuses is refused in its own words.
    let invalid = ["create", "configmap", "Not.Valid_"];
    let refused = output(world.through_line().args(invalid));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("is invalid"), "{told}");
}

/// L1: a workload's life.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deployment_lives_through_the_line() {
    let world = world::adopted();
    ready(&world);
    for args in [
        "create deployment d --image=lab.invalid/busybox:1 --replicas=0",
        "scale deployment d --replicas=0 --current-replicas=0",
        "set env deployment d A=B",
        "rollout status deployment d --timeout=30s",
        r#"patch deployment d --subresource=scale --type=merge -p {"spec":{"replicas":0}}"#,
        "delete deployment d --cascade=foreground",
    ] {
        line(&world, args);
    }
}

/// L10: acting as someone else is refused, never run silently as the caller; the caller's own rights can be asked.
#[test]
#[ignore = "needs a real cluster: make test"]
fn acting_as_someone_else_is_refused() {
    let world = world::adopted();
    ready(&world);
    assert_eq!(
        run(world
            .through_line()
            .args(["auth", "can-i", "create", "pods"]))
        .trim(),
        "yes"
    );
    assert!(run(world.through_line().args(["auth", "whoami"])).contains("linesman:"));
    for args in [
        &["--as", "system:admin", "get", "pods"][..],
        &[
            "--as",
            "ada",
            "--as-group",
            "system:masters",
            "get",
            "--raw",
            "/api",
        ],
        &["--as", "ada", "--as-uid", "7", "get", "--raw", "/api"],
    ] {
        let asked = output(world.through_line().args(args));
        let told = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(!asked.status.success(), "{args:?}");
        assert!(told.contains("--as"), "{args:?}: {told}");
    }
}

/// L10: who a grant names is acted as, with their rights and no others, on record.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_grant_lets_act_as_whom_it_names() {
    let world = world::adopted();
    ready(&world);
    let grant = "grant add user:admin --all-clusters --group view --as bob --as-group view -o name";
    let id = world.hub.linesman(&grant.split(' ').collect::<Vec<_>>());
    let acting = |args: &[&str]| {
        let mut command = world.through_line();
        command
            .args(["--as", "bob", "--as-group", "view"])
            .args(args);
        output(&mut command)
    };
    let who = acting(&["auth", "whoami", "-o", "json"]);
    let who: Value = serde_json::from_slice(&who.stdout).unwrap();
    let who = &who["status"]["userInfo"];
    assert_eq!(
        (&who["username"], &who["groups"]),
        (
            &json!("linesman:bob"),
            &json!(["linesman:view", "system:authenticated"])
        )
    );
    assert!(acting(&["get", "pods"]).status.success());
    // The caller is admin; bob only sees. And nobody but bob in view is let through.
    let told = |asked: std::process::Output| String::from_utf8_lossy(&asked.stderr).into_owned();
    let refused = told(acting(&["create", "configmap", "x"]));
    assert!(
        refused.contains(r#"User "linesman:bob" cannot create"#),
        "{refused}"
    );
    let alone = told(output(
        world.through_line().args(["--as", "bob", "get", "pods"]),
    ));
    assert!(
        alone.contains(r#"User "linesman:bob" cannot list"#),
        "{alone}"
    );
    let other = told(acting(&["--as-group", "admin", "get", "pods"]));
    assert!(other.contains("no grant lets admin act as bob"), "{other}");
    let audit = world.hub.json(&["audit", "list", "--limit", "100"]);
    let acted = audit
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row["actedAs"].is_null());
    let acted: Vec<_> = acted.map(|row| (&row["actor"], &row["actedAs"])).collect();
    let pair = (
        &json!("user:admin"),
        &json!("linesman:bob in linesman:view"),
    );
    assert!(acted.contains(&pair), "{acted:?}");
    world.hub.linesman(&["grant", "revoke", id.trim(), "--yes"]);
    assert!(told(acting(&["get", "pods"])).contains("no grant lets admin act as bob"));
}
