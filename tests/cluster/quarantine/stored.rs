//! A commit that brings a CRD without a version that objects are still stored in, which the API server refuses to the engine.

use serde_json::{Value, json};

use super::{CLUSTER, Catalog, FLUX};
use crate::support::api::path;
use crate::support::{eventually, figure, seconds, shown, until};

const NAME: &str = "buckets.source.toolkit.fluxcd.io";
const GROUP: &str = "source.toolkit.fluxcd.io";
const GONE: &str = "v1alpha9";

/// W15, F17: the objects are written anew for Git's CRD, too, and then the commit is delivered.
pub(super) fn migrated_for_git(catalog: &Catalog, engine: &str) {
    let api = &catalog.world.api;
    let crd = path(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        NAME,
    );
    let today = api.get(&crd).unwrap()["spec"]["versions"][0]["name"].clone();
    catalog.push(&with_both(engine, &api.get(&crd).unwrap()), "both");
    let old = bucket(GONE);
    let (collection, _) = old.rsplit_once('/').unwrap();
    until("both versions are served", seconds(120), || {
        let served = api.try_get(collection).is_ok_and(|list| list.is_some());
        served && catalog.delivered() == "both"
    });
    let object = json!({
        "apiVersion": format!("{GROUP}/{GONE}"), "kind": "Bucket",
        "metadata": { "name": "kept", "namespace": FLUX },
        "spec": { "bucketName": "b", "endpoint": "e", "interval": "1h", "suspend": true },
    });
    api.create(collection, &object);
    let uid = catalog.world.uid(&old).unwrap();
    let both = json!({ "status": { "storedVersions": [GONE, today] } });
    api.patch(&format!("{crd}/status"), &both);
    catalog.push(engine, "one");
    let ((), took) = eventually("the commit is delivered", seconds(240), || {
        let stored = api.get(&crd).unwrap()["status"]["storedVersions"].clone();
        let is = catalog.delivered();
        if is == "one" && stored == json!([today]) {
            Ok(())
        } else {
            Err(format!("{is}, {stored}"))
        }
    });
    figure(
        "W15",
        "commit with a CRD that lacks a version in storedVersions → objects written anew, delivered",
        "≤ 120 s",
        shown(took),
    );
    let kept = bucket(today.as_str().unwrap());
    assert_eq!(api.get(&kept).unwrap()["metadata"]["uid"], json!(uid));
    let heals = catalog.world.hub.json(&["heal", "list", CLUSTER]);
    assert!(heals.to_string().contains("CrdStoredVersion"), "{heals}");
    assert!(api.delete(&kept));
}

fn bucket(version: &str) -> String {
    path(&format!("{GROUP}/{version}"), "Bucket", FLUX, "kept")
}

/// The same engine with one more version of the CRD.
fn with_both(engine: &str, live: &Value) -> String {
    let mut spec = live["spec"].clone();
    let mut old = spec["versions"][0].clone();
    old["name"] = json!(GONE);
    old["storage"] = json!(false);
    spec["versions"].as_array_mut().unwrap().push(old);
    let crd = json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": { "name": NAME, "labels": labels(live) }, "spec": spec,
    });
    let is_it = |document: &&str| {
        document.contains("kind: CustomResourceDefinition")
            && document.contains(&format!("name: {NAME}"))
    };
    let documents: Vec<&str> = engine.split("\n---\n").collect();
    assert_eq!(documents.iter().filter(|d| is_it(d)).count(), 1);
    let changed = documents.into_iter().map(|document| {
        if is_it(&document) {
            crd.to_string()
        } else {
            document.to_owned()
        }
    });
    changed.collect::<Vec<_>>().join("\n---\n")
}

/// Without those that Flux sets.
fn labels(live: &Value) -> Value {
    let mut labels = live["metadata"]["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| !key.contains("toolkit.fluxcd.io"));
    }
    labels
}
