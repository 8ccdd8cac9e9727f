use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::agent::engine::compare::drift;
use crate::agent::engine::{GIT_OWNER, Install};
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

/// Flux as it is released with this source-controller.
fn with_source(image: &str) -> Desired {
    let mut desired = desired_of(EngineKind::Flux);
    let mut objects: Vec<Value> = desired.install.bundle.objects.iter().map(whole).collect();
    for object in &mut objects {
        if object["kind"] == "Deployment" && object["metadata"]["name"] == "source-controller" {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        }
    }
    desired.install.bundle = Arc::new(Bundle::from_objects(objects).unwrap());
    desired
}

/// W43: an older source-controller takes every key for a ring of OpenPGP, and would refuse each head for one that is none.
#[test]
fn ssh_keys_are_given_to_who_reads_them() {
    let ring = SignerRef {
        fingerprint: "A8".repeat(20),
        public_key: "armor".to_owned(),
        subkeys: Vec::new(),
    };
    let line = SignerRef {
        fingerprint: "SHA256:a/b+c".to_owned(),
        public_key: "ssh-ed25519 AAAA\n".to_owned(),
        subkeys: Vec::new(),
    };
    let id = ObjectId::new(Kind::Secret, NAME, SIGNERS);
    let both = json!({
        format!("{}.asc", "A8".repeat(20)): STANDARD.encode("armor"),
        "SHA256_a_b-c.sshpub": STANDARD.encode("ssh-ed25519 AAAA\n"),
    });
    let one = json!({ format!("{}.asc", "A8".repeat(20)): STANDARD.encode("armor") });
    let registry = "ghcr.io/fluxcd";
    for (tag, reads) in [
        ("v1.9.0", true),
        ("v1.10.2", true),
        ("v2.0.0", true),
        ("v1.9.4@sha256:00", true),
        ("v1.8.5", false),
        ("v1", false),
        ("latest", false),
    ] {
        let mut desired = with_source(&format!("{registry}/source-controller:{tag}"));
        assert_eq!(verifies_ssh(&desired.install.bundle), reads, "{tag}");
        desired.assignment.catalog.signers = vec![ring.clone(), line.clone()];
        let install = Install::new(&desired, &BTreeMap::new(), None);
        let expected = if reads { &both } else { &one };
        assert_eq!(install.body(&id).unwrap()["data"], *expected, "{tag}");
        // Without a key that it reads it refuses every head, and asks for a signature all the same.
        desired.assignment.catalog.signers = vec![line.clone()];
        let install = Install::new(&desired, &BTreeMap::new(), None);
        let data = install.body(&id).unwrap()["data"].clone();
        assert_eq!(data.as_object().unwrap().len(), usize::from(reads), "{tag}");
        let source = install.body(&install.source).unwrap();
        let verify = json!({"mode": "HEAD", "secretRef": {"name": SIGNERS}});
        assert_eq!(source["spec"]["verify"], verify, "{tag}");
    }
}

/// W43: Git may bring an older source-controller than the bundle has, and a newer one.
#[test]
fn ssh_keys_are_given_by_the_version_that_git_brings() {
    let image = |tag: &str| format!("ghcr.io/fluxcd/source-controller:{tag}");
    let controller = ObjectId::new(Kind::Deployment, NAME, "source-controller");
    let keys = ObjectId::new(Kind::Secret, NAME, SIGNERS);
    for (bundled, brought, read) in [("v1.9.0", "v1.8.5", 0), ("v1.8.5", "v1.9.0", 1)] {
        let mut desired = with_source(&image(bundled));
        desired.assignment.catalog.signers = vec![SignerRef {
            fingerprint: "SHA256:abc".to_owned(),
            public_key: "ssh-ed25519 AAAA\n".to_owned(),
            subkeys: Vec::new(),
        }];
        let install = Install::new(&desired, &BTreeMap::new(), None);
        let mut by_git = install.body(&controller).unwrap();
        by_git["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
        by_git["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image(brought));
        let kept = BTreeMap::from([(controller.clone(), by_git)]);
        let install = Install::new(&desired, &kept, None);
        let data = install.body(&keys).unwrap()["data"].clone();
        assert_eq!(data.as_object().unwrap().len(), read, "{brought}");
        let expected = &install.wanted[&keys].expect["data"];
        assert_eq!(expected.as_object().unwrap().len(), read, "{brought}");
    }
}
