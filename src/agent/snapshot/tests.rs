use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;

use super::*;

fn live(managed: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "x", "namespace": "n", "labels": {"a": "1", GIT_OWNER: "root", GIT_OWNER_NAMESPACE: "n"},
            "managedFields": managed,
        },
        "spec": {"replicas": 1},
    });
    serde_json::from_value(object).unwrap()
}

/// A label that a person wrote makes no snapshot call an object Git's; one of the engine's does, also put back by us.
#[test]
fn a_mark_is_kept_only_where_the_engine_or_the_agent_wrote_it() {
    let owner = format!("f:{GIT_OWNER}");
    let space = format!("f:{GIT_OWNER_NAMESPACE}");
    for (manager, operation, kept) in [
        ("kustomize-controller", "Apply", true),
        (MANAGER, "Apply", true),
        ("kubectl-label", "Update", false),
        ("kustomize-controller", "Update", false),
    ] {
        let managed = json!([
            {"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}},
            {"manager": manager, "operation": operation, "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {owner.as_str(): {}, space.as_str(): {}}}}},
        ]);
        let mut labels = json!({"a": "1"});
        if kept {
            labels[GIT_OWNER] = json!("root");
            labels[GIT_OWNER_NAMESPACE] = json!("n");
        }
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "x", "namespace": "n", "labels": labels},
            "spec": {"replicas": 1},
        });
        assert_eq!(
            as_set(&live(&managed)).unwrap(),
            expected,
            "{manager} {operation}"
        );
    }
}

/// What people add to a controller of ours is part of last known good; what is ours is told by the bundle, and what a hold or
/// a window left is said of that one object.
#[test]
fn what_others_set_beyond_our_own_is_kept() {
    let ours = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "n", "labels": {"a": "1"}},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "i:1", "args": ["a"]}]}}},
    });
    let mut object = ours.clone();
    object["metadata"]["annotations"] =
        json!({"team": "infra", HELD: "{}", "linesman.dev/maintenance-until": "x"});
    let pod = &mut object["spec"]["template"]["spec"];
    pod["containers"][0]["env"] =
        json!([{"name": "HTTPS_PROXY", "value": "p"}, {"name": "ASKED", "value": "us"}]);
    pod["tolerations"] = json!([{"key": "infra"}]);
    let container = |fields: Value| {
        let pod = json!({"f:containers": {"k:{\"name\":\"m\"}": fields}, "f:tolerations": {}});
        json!({"f:spec": {"f:template": {"f:spec": pod}}, "f:metadata": {"f:annotations": {
            "f:team": {}, format!("f:{HELD}"): {}, "f:linesman.dev/maintenance-until": {},
        }}})
    };
    let env = |name: &str| {
        let item = format!("k:{{\"name\":\"{name}\"}}");
        container(json!({"f:env": {item: {".": {}, "f:name": {}, "f:value": {}}}}))
    };
    let images = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"m\"}": {"f:image": {}}}}}}});
    let added = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "n", "annotations": {"team": "infra"}},
        "spec": {"template": {"spec": {
            "containers": [{"name": "m", "env": [{"name": "HTTPS_PROXY", "value": "p"}]}],
            "tolerations": [{"key": "infra"}],
        }}},
    });
    for (manager, subresource, fields, kept) in [
        ("kubectl-edit", "", env("HTTPS_PROXY"), Some(added)),
        ("kubectl", "", images, None),
        ("hpa", "scale", env("HTTPS_PROXY"), None),
        (GUARD, "", env("HTTPS_PROXY"), None),
    ] {
        let mut live = object.clone();
        live["metadata"]["managedFields"] = json!([
            {"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": env("ASKED")},
            {"manager": manager, "operation": "Update", "subresource": subresource, "fieldsType": "FieldsV1", "fieldsV1": fields},
        ]);
        let live = serde_json::from_value(live).unwrap();
        assert_eq!(
            by_others(&live, &ours).unwrap(),
            kept,
            "{manager} {subresource}"
        );
    }
}

/// W8: a policy of the cluster gives every container its bounds, and no field manager has them.
#[test]
fn bounds_that_admission_gave_are_kept() {
    let with = |resources: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "x", "namespace": "n"},
            "spec": {"template": {"spec": {"containers": [{"name": "m", "resources": resources}]}}},
        })
    };
    let ours = with(json!({"limits": {"cpu": "1"}}));
    let all = json!({"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}});
    let mut live = with(all.clone());
    let set = json!({"k:{\"name\":\"m\"}": {"f:resources": {"f:limits": {"f:cpu": {}}}}});
    live["metadata"]["managedFields"] = json!([
        {"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": set}}}}},
    ]);
    let live = serde_json::from_value(live).unwrap();
    assert_eq!(as_set(&live).unwrap(), with(all));
    let theirs = with(json!({"requests": {"memory": "1Gi"}}));
    assert_eq!(by_others(&live, &ours).unwrap(), Some(theirs));
}

/// W46: a snapshot that somebody spoilt is told of by its name, and the others count as ever.
#[test]
fn a_snapshot_that_cannot_be_read_is_told_by_name_and_takes_no_other_along() {
    let map = |name: &str, number: &str, spoil: Option<&str>| {
        let plain = b"[]";
        let mut data = BTreeMap::from([
            ("number".to_owned(), number.to_owned()),
            ("taken".to_owned(), "2026-01-02T03:04:05Z".to_owned()),
            ("sha256".to_owned(), sha256_hex(plain)),
        ]);
        let mut packed = bundle::compress(plain);
        match spoil {
            Some("objects.zst") => packed = b"?".to_vec(),
            Some(key) => drop(data.insert(key.to_owned(), "?".to_owned())),
            None => {}
        }
        let mut map = ConfigMap {
            data: Some(data),
            binary_data: Some([(OBJECTS.to_owned(), k8s_openapi::ByteString(packed))].into()),
            ..ConfigMap::default()
        };
        map.metadata.name = Some(name.to_owned());
        map
    };
    let parts = ["number", "taken", "sha256", "objects.zst"];
    let mut maps: Vec<ConfigMap> = parts
        .iter()
        .map(|part| map(&format!("spoilt-{part}"), "9", Some(part)))
        .collect();
    maps.extend([map("good-7", "7", None), map("good-8", "8", None)]);
    maps.push(ConfigMap::default());
    let (found, wrong) = whole(&maps);
    let numbers: Vec<u64> = found.iter().map(|s| s.number).collect();
    assert_eq!(numbers, [7, 8]);
    let told: Vec<&str> = wrong
        .iter()
        .filter_map(|text| text.split(" is no").next())
        .collect();
    assert_eq!(
        told,
        [
            "ConfigMap spoilt-number",
            "ConfigMap spoilt-taken",
            "ConfigMap spoilt-sha256",
            "ConfigMap spoilt-objects.zst",
            "ConfigMap ",
        ]
    );
}

/// W22: what the engine does without is noted with the rest; a snapshot of an agent of before says nothing of it.
#[test]
fn what_was_dropped_is_read_as_it_was_kept() {
    let dropped = [
        ObjectId::new(Kind::NetworkPolicy, "flux-system", "allow-egress"),
        ObjectId::new(Kind::ClusterRole, "", "flux-view-flux-system"),
    ];
    let kept = json!(dropped.iter().map(stub).collect::<Vec<_>>()).to_string();
    for (said, expected) in [
        (Some(kept.as_str()), Some(dropped.clone().into())),
        (None, Some(BTreeSet::new())),
        (Some("?"), None),
    ] {
        let plain = b"[]";
        let mut data = BTreeMap::from([
            ("number".to_owned(), "7".to_owned()),
            ("taken".to_owned(), "2026-01-02T03:04:05Z".to_owned()),
            ("sha256".to_owned(), sha256_hex(plain)),
        ]);
        data.extend(said.map(|said| (DROPPED.to_owned(), said.to_owned())));
        let packed = k8s_openapi::ByteString(bundle::compress(plain));
        let map = ConfigMap {
            data: Some(data),
            binary_data: Some([(OBJECTS.to_owned(), packed)].into()),
            ..ConfigMap::default()
        };
        let read = read(&map).ok().map(|snapshot| snapshot.dropped);
        assert_eq!(read, expected, "{said:?}");
    }
}

/// W5: what the agent has taken back is not Git's any more, and all else is as it was, also what is kept in the cluster only.
#[test]
fn what_is_disowned_is_in_the_snapshot_without_its_mark() {
    let object = |kind: Kind, name: &str, labels: &Value| {
        json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "namespace": "flux-system", "labels": labels},
        })
    };
    let (gits, ours) = (
        json!({"a": "1", GIT_OWNER: "root", GIT_OWNER_NAMESPACE: "n"}),
        json!({"a": "1"}),
    );
    let all = |back: &Value| {
        vec![
            object(Kind::ConfigMap, "settings", back),
            object(Kind::Service, "ours", &ours),
            object(Kind::Deployment, "back", back),
            object(Kind::Deployment, "gits", &gits),
        ]
    };
    let id = |object: &Value| place(object).unwrap();
    let placed = |all: Vec<Value>| -> BTreeMap<ObjectId, Value> {
        all.into_iter().map(|o| (id(&o), o)).collect()
    };
    let before = serde_json::to_vec(&all(&gits)).unwrap();
    let packed = k8s_openapi::ByteString(bundle::compress(&before));
    let data = BTreeMap::from([
        ("number".to_owned(), "7".to_owned()),
        ("taken".to_owned(), "2026-01-02T03:04:05Z".to_owned()),
        ("sha256".to_owned(), sha256_hex(&before)),
        ("engine".to_owned(), "flux".to_owned()),
    ]);
    let map = ConfigMap {
        data: Some(data),
        binary_data: Some([(OBJECTS.to_owned(), packed)].into()),
        ..ConfigMap::default()
    };
    let last = read(&map).unwrap();
    let back: BTreeSet<ObjectId> = [0, 2].map(|n| id(&all(&gits)[n])).into();
    let (snapshot, plain) = disowned(&map, &last, &back).unwrap();
    let stored: Vec<Value> = serde_json::from_slice(&plain).unwrap();
    assert_eq!(placed(stored), placed(all(&ours)));
    let said = |of: &Snapshot| (of.number, of.taken, of.engine);
    assert_eq!(said(&snapshot), said(&last));
    assert_eq!(snapshot.digest, sha256_hex(&plain));
    let in_memory = [0, 3].map(|n| all(&ours)[n].clone());
    assert_eq!(snapshot.objects, placed(in_memory.to_vec()));

    // What somebody wrote in its place is not made a snapshot.
    let other = Snapshot { number: 8, ..last };
    assert!(disowned(&map, &other, &back).is_err());
}

/// An agent may end when it has kept a snapshot and not deleted the oldest one yet.
#[tokio::test]
async fn what_an_agent_did_not_come_to_delete_goes_with_the_next_snapshot() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&gone);
    let server = tower::service_fn(move |request: Request<Body>| {
        let gone = Arc::clone(&seen);
        async move {
            let said = if *request.method() == Method::GET {
                let names = ["2", "3", "4", "5", "6", "7", "of-somebody"];
                let items = names.map(|n| json!({"metadata": {"name": format!("{NAMED}{n}")}}));
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {}, "items": items,
                })
            } else if *request.method() == Method::DELETE {
                let name = request.uri().path().rsplit('/').next().unwrap();
                gone.lock().unwrap().push(name.to_owned());
                json!({"kind": "Status", "status": "Success"})
            } else {
                json!({"metadata": {"name": "x"}})
            };
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let kube = Client::new(server, "linesman");
    let snapshot = Snapshot {
        number: 7,
        taken: OffsetDateTime::UNIX_EPOCH,
        digest: sha256_hex(b"[]"),
        engine: None,
        objects: BTreeMap::new(),
        added: BTreeMap::new(),
        dropped: BTreeSet::new(),
    };
    store(&kube, "linesman", &snapshot, b"[]").await.unwrap();
    let names = [2, 3, 4].map(map_name);
    assert_eq!(*gone.lock().unwrap(), names);
}
