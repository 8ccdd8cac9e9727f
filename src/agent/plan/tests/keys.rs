//! Keys: what the source is fetched and verified with.

use super::*;
use crate::agent::engine::flux::SIGNERS;
use crate::agent::gate::policy::{Heal, Mending};

/// W43: Flux reads the keys from a Secret of their own, each value of which is a key ring.
#[test]
fn signers_are_what_the_source_verifies_with() {
    let signed = install_signed();
    let id = ObjectId::new(Kind::Secret, "flux-system", SIGNERS);
    let name = format!("{}.asc", "A8".repeat(20));
    assert_eq!(
        signed.body(&id).unwrap()["data"],
        json!({ name: "YXJtb3I=" })
    );
    let verify = |install: &Install| {
        let source = install.body(&install.source).unwrap();
        source.pointer("/spec/verify").cloned()
    };
    assert_eq!(
        verify(&signed),
        Some(json!({"mode": "HEAD", "secretRef": {"name": SIGNERS}}))
    );
    let plain = install();
    assert_eq!((plain.body(&id), verify(&plain)), (None, None));
}

/// What an owner set up to be verified stays; what we did goes, also when nobody saw how it ended.
#[test]
fn only_our_own_verification_is_taken_back() {
    for (secret, ours) in [("owners-keys", false), (SIGNERS, true)] {
        let mut cluster = Cluster::working();
        let source = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&source).unwrap();
        live.fields["spec"]["verify"] = json!({"mode": "HEAD", "secretRef": {"name": secret}});
        let found = cluster.plan().findings;
        let evidence: Vec<&str> = found.iter().map(|f| f.evidence.as_str()).collect();
        let expected: &[&str] = if ours {
            &["differs at /spec/verify"]
        } else {
            &[]
        };
        assert_eq!(evidence, expected, "{secret}");
    }
}

/// W43: Argo CD's project accepts the signers' keys and no others, and a root is led to no project that accepts anything.
#[test]
fn a_project_that_accepts_other_keys_is_written_again() {
    let signed = || Cluster::working_with(install_signed_of(EngineKind::Argocd));
    let project = ObjectId::new(Kind::AppProject, "argocd", "default");
    let ours = json!({"keyID": "A8".repeat(8)});
    let known = signed();
    let keys =
        |cluster: &Cluster| cluster.objects[&project].fields["spec"]["signatureKeys"].clone();
    assert_eq!(keys(&known), json!([ours]));
    assert_eq!(known.plan().findings, Vec::new());
    for altered in [json!([ours, {"keyID": "0".repeat(16)}]), json!([])] {
        let mut cluster = signed();
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&project).unwrap();
        live.fields["spec"]["signatureKeys"] = altered;
        let plan = cluster.plan();
        let found = plan.findings.iter();
        let found: Vec<(Class, &str)> = found.map(|f| (f.class, f.evidence.as_str())).collect();
        assert_eq!(
            found,
            [(Class::ProjectMissing, "differs at /spec/signatureKeys")]
        );
        cluster.install.policy.owner = Some(Mending {
            heal: Heal::Safe,
            ..Mending::default()
        });
        cluster.objects.remove(&root);
        let plan = cluster.plan();
        let writes = |id: &ObjectId| plan.steps.iter().any(|s| s.target == *id);
        assert_eq!((writes(&project), writes(&root)), (true, false));
    }
    // What nobody saw the end of.
    let mut plain = Cluster::working_of(EngineKind::Argocd);
    plain
        .objects
        .insert(project.clone(), known.objects[&project].clone());
    let found = plain.plan().findings;
    let evidence: Vec<&str> = found.iter().map(|f| f.evidence.as_str()).collect();
    assert_eq!(evidence, ["differs at /spec/signatureKeys"]);
}

/// W43: policies of people's, with which Argo CD passes the keys over, are taken out, also while only what is missing is put back.
#[test]
fn a_project_whose_policies_pass_the_keys_over_is_written_again() {
    let mut cluster = Cluster::working_with(install_signed_of(EngineKind::Argocd));
    let project = ObjectId::new(Kind::AppProject, "argocd", "default");
    let live = cluster.objects.get_mut(&project).unwrap();
    live.fields["spec"]["sourceIntegrity"] = json!({"git": {"policies": []}});
    cluster.install.policy.owner = Some(Mending {
        heal: Heal::Safe,
        ..Mending::default()
    });
    let plan = cluster.plan();
    let found = plan.findings.iter();
    let found: Vec<(Class, &str)> = found.map(|f| (f.class, f.evidence.as_str())).collect();
    let differs = "differs at /spec/sourceIntegrity";
    assert_eq!(found, [(Class::ProjectMissing, differs)]);
    let writes = |s: &Step| s.target == project && s.action == Action::WriteSecret;
    assert!(plan.steps.iter().any(writes), "{:?}", plan.steps);
}

/// F24, W43: the keys are in the ring beside people's, which stay.
#[test]
fn signers_keys_are_put_back_into_argo_cds_ring() {
    let mut cluster = Cluster::working_with(install_signed_of(EngineKind::Argocd));
    let ring = ObjectId::new(Kind::ConfigMap, "argocd", "argocd-gpg-keys-cm");
    let (key, theirs) = ("A8".repeat(8), "0".repeat(16));
    let data = |cluster: &Cluster| cluster.objects[&ring].fields["data"].clone();
    assert_eq!(data(&cluster), json!({key.as_str(): "armor"}));
    let live = cluster.objects.get_mut(&ring).unwrap();
    live.fields["data"][&theirs] = json!("people's");
    assert_eq!(cluster.plan().findings, Vec::new());
    let live = cluster.objects.get_mut(&ring).unwrap();
    live.fields["data"] = json!({theirs.as_str(): "people's", key.as_str(): "another"});
    let plan = cluster.plan();
    let found: Vec<(Class, &ObjectId)> =
        plan.findings.iter().map(|f| (f.class, &f.object)).collect();
    assert_eq!(found, [(Class::GitSecretBad, &ring)]);
    assert!(
        plan.steps
            .iter()
            .any(|s| s.target == ring && s.action == Action::WriteSecret)
    );
    let ours = cluster.install.keys_of(&ring).unwrap();
    assert_eq!(ours["data"], json!({key.as_str(): "armor"}));
}

#[test]
fn host_key_and_key_trouble_are_told_apart() {
    let cases = [
        (
            "failed to checkout: knownhosts: key mismatch",
            Class::HostKeyMismatch,
        ),
        (
            "ssh: handshake failed: ssh: unable to authenticate",
            Class::KeyRevoked,
        ),
        ("dial tcp: lookup git: no such host", Class::GitUnreachable),
    ];
    for (message, class) in cases {
        let mut cluster = Cluster::working();
        let source = cluster.install.source.clone();
        cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message}]);
        let plan = cluster.plan();
        assert_eq!(
            plan.findings.iter().map(|f| f.class).collect::<Vec<_>>(),
            [class]
        );
        assert_eq!(plan.steps, Vec::new());
    }
}

/// F24: a key that is missing or malformed was never offered, so the Git host has not refused it.
#[test]
fn a_source_that_found_no_key_has_a_bad_secret_and_no_revoked_key() {
    let mut cluster = Cluster::working();
    let source = cluster.install.source.clone();
    let secret = cluster.install.secret.clone();
    let message = "failed to get secret 'flux-system/flux-system'";
    let said = json!([{"type": "Ready", "status": "False", "reason": "AuthenticationFailed", "message": message}]);
    cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = said;
    let plan = cluster.plan();
    let found: Vec<_> = plan
        .findings
        .iter()
        .map(|f| (f.class, &f.object, f.reported))
        .collect();
    assert_eq!(found, [(Class::GitSecretBad, &source, true)]);
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
    // Where it is the Secret that is wrong, that is mended, and what the source says of it is old from then on.
    let kept = cluster.objects.remove(&secret).unwrap();
    let found: Vec<_> = cluster
        .plan()
        .findings
        .into_iter()
        .map(|f| (f.class, f.object))
        .collect();
    assert_eq!(found, [(Class::GitSecretBad, secret.clone())]);
    cluster.objects.insert(secret, kept);
    cluster.history.last_write = Some(cluster.now);
    assert_eq!(cluster.plan().findings, Vec::new());
}
