//! Keys: what the source is fetched and verified with.

use super::*;
use crate::agent::engine::flux::SIGNERS;

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
