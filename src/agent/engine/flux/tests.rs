use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::agent::engine::Install;
use crate::agent::engine::compare::drift;
use crate::agent::plan::tests::desired_of;

const SINK: &str = "--events-addr=http://notification-controller.flux-system.svc";
const STORE: &str = "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc";

/// Flux as its manifest has it for this domain, in a cluster of that one; with the notification-controller, or without.
fn desired(made_for: &str, cluster: &str, notifies: bool) -> Desired {
    let mut desired = desired_of(EngineKind::Flux);
    let mut objects: Vec<Value> = desired.install.bundle.objects.iter().map(whole).collect();
    let args = json!([
        "--log-level=info",
        format!("{SINK}.{made_for}./"),
        format!("{STORE}.{made_for}."),
    ]);
    let mut workloads = objects
        .iter_mut()
        .filter(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "source-controller");
    let source = workloads.next().unwrap();
    source["spec"]["template"]["spec"]["containers"][0]["args"] = args;
    if notifies {
        let mut second = source.clone();
        second["metadata"]["name"] = json!("notification-controller");
        objects.push(second);
    }
    desired.install.bundle = Arc::new(Bundle::from_objects(objects).unwrap());
    desired.domain = Domain::of(
        &format!("search linesman.svc.{cluster} svc.{cluster} {cluster}"),
        "linesman",
    );
    desired
}

fn whole(document: &crate::bundle::Document) -> Value {
    document.whole().into_owned()
}

/// An install value, as it is applied and as it is expected: none of them is drift.
#[test]
fn addresses_are_below_the_domain_of_the_cluster() {
    let id = ObjectId::new(Kind::Deployment, NAME, "source-controller");
    let usual = "cluster.local";
    for (made_for, cluster, notifies, sink, store) in [
        (usual, usual, true, usual, usual),
        (usual, "corp.example", true, "corp.example", "corp.example"),
        (usual, "corp.example", false, "", "corp.example"),
        // As `flux install --cluster-domain` makes it.
        (
            "own.example",
            "corp.example",
            true,
            "own.example",
            "own.example",
        ),
        ("own.example", usual, true, "own.example", "own.example"),
    ] {
        let desired = desired(made_for, cluster, notifies);
        let install = Install::new(&desired, &BTreeMap::new(), None);
        let body = install.body(&id).unwrap();
        let sink = if sink.is_empty() {
            "--events-addr=".to_owned()
        } else {
            format!("{SINK}.{sink}./")
        };
        let args = json!(["--log-level=info", sink, format!("{STORE}.{store}.")]);
        let at = "/spec/template/spec/containers/0/args";
        assert_eq!(body.pointer(at), Some(&args), "{made_for} {cluster}");
        let expect = &install.wanted[&id].expect;
        assert_eq!(drift(expect, &body), Vec::<String>::new());
    }
}

#[test]
fn in_a_cluster_of_the_usual_domain_an_install_is_what_its_manifest_says() {
    let desired = desired("cluster.local", "cluster.local", true);
    let install = Install::new(&desired, &BTreeMap::new(), None);
    for object in desired.install.bundle.objects.iter().map(whole) {
        let id = crate::agent::engine::place(&object).unwrap();
        assert_eq!(install.body(&id), Some(object));
    }
}
