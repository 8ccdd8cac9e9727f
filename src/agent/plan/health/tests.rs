use serde_json::json;

use super::*;
use crate::agent::engine::argocd::REDIS;
use crate::agent::plan::tests::{Cluster, deployment};

mod pods;
mod proven;
mod wedged;

fn found(
    cluster: &Cluster,
    observed: &Observed,
    of: impl Fn(&mut Vec<Finding>, &Cluster, &Observed),
) -> Vec<(Class, ObjectId)> {
    let mut found = Vec::new();
    of(&mut found, cluster, observed);
    found.into_iter().map(|f| (f.class, f.object)).collect()
}

fn of_roots(cluster: &Cluster, observed: &Observed) -> Vec<(Class, ObjectId)> {
    found(cluster, observed, |found, cluster, observed| {
        roots(
            cluster.now,
            &cluster.install,
            observed,
            &cluster.history,
            found,
        );
    })
}

/// W43: what Argo CD made of the head before anybody had to sign says nothing of a signature; by then it was asked anew.
#[test]
fn a_signature_is_missed_when_its_key_can_have_been_loaded() {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let root = cluster.install.sync.clone();
    let message = "Target revision a in Git is not signed, but a signature is required";
    let said = json!([{"type": "ComparisonError", "message": message}]);
    cluster.objects.get_mut(&root).unwrap().fields["status"]["conditions"] = said;
    let named = vec![(Class::SignatureFailed, root)];
    for (ago, expected) in [(29, vec![]), (30, named)] {
        cluster.history.host_keys = Some(cluster.now - Duration::seconds(ago));
        assert_eq!(of_roots(&cluster, &cluster.observed()), expected, "{ago}");
    }
}

const FULL: &str = "write /tmp/x: no space left on device";

/// F24, F25, F26, F27, F30, F31, F32, F38, F39, F40, F41, F42
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each case")]
fn what_a_root_of_flux_complains_of_has_its_class() {
    for (reason, message, class) in [
        (
            "GitOperationFailed",
            "knownhosts: key is unknown",
            Some(Class::HostKeyMismatch),
        ),
        (
            "GitOperationFailed",
            "host key verification failed",
            Some(Class::HostKeyMismatch),
        ),
        (
            "GitOperationFailed",
            "permission denied",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "authorization failed",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "ssh: handshake failed: ssh: disconnect, reason 2: too many authentication failures",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "git@git.test: Permission denied (publickey).",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "ssh: handshake failed: read: connection reset by peer",
            Some(Class::GitUnreachable),
        ),
        (
            "GitOperationFailed",
            "i/o timeout",
            Some(Class::GitUnreachable),
        ),
        ("AuthenticationFailed", "", Some(Class::GitSecretBad)),
        ("VerificationError", "", Some(Class::SignatureFailed)),
        ("InvalidCommitSignature", "", Some(Class::SignatureFailed)),
        ("DirectoryCreationFailed", "", Some(Class::ArtifactLost)),
        ("StatOperationFailed", "", Some(Class::ArtifactLost)),
        ("AcquireLockFailed", "", Some(Class::ArtifactLost)),
        ("ArchiveOperationFailed", "", Some(Class::ArtifactLost)),
        ("SymlinkUpdateFailed", "", Some(Class::ArtifactLost)),
        ("GitOperationFailed", FULL, Some(Class::ArtifactLost)),
        (
            "ArtifactFailed",
            "failed to untar: write /tmp/x: no space left on device",
            Some(Class::ArtifactLost),
        ),
        ("BuildFailed", FULL, Some(Class::ArtifactLost)),
        ("ArtifactFailed", "path not found", Some(Class::PathMissing)),
        (
            "ArtifactFailed",
            "stat a: no such file or directory",
            Some(Class::PathMissing),
        ),
        ("ArtifactFailed", "source is not ready", None),
        ("ArtifactFailed", "source not found", None),
        (
            "ArtifactFailed",
            "connection refused",
            Some(Class::ArtifactUnreachable),
        ),
        (
            "BuildFailed",
            "kustomization path not found",
            Some(Class::PathMissing),
        ),
        ("BuildFailed", "", Some(Class::BuildFailed)),
        ("ReconciliationFailed", "", Some(Class::ApplyFailed)),
        ("PruneFailed", "", Some(Class::ApplyFailed)),
        ("InvalidCELExpression", "", Some(Class::ApplyFailed)),
        ("HealthCheckFailed", "", Some(Class::HealthCheckFailed)),
        ("HealthCheckCanceled", "", Some(Class::HealthCheckFailed)),
        ("DependencyNotReady", "", Some(Class::DependencyNotReady)),
        ("Progressing", "", None),
    ] {
        assert_eq!(root_fault(reason, message), class, "{reason}: {message}");
    }
}

/// What it says while it is at work, or is not looked at, is not the end of a look.
#[test]
fn a_look_of_argo_cd_has_ended_where_no_operation_runs_and_nobody_stopped_it() {
    for (phase, skip, expected) in [
        ("Succeeded", "false", true),
        ("Running", "false", false),
        ("Succeeded", "true", false),
        ("Running", "true", false),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["status"]["operationState"]["phase"] = json!(phase);
        live.fields["metadata"]["annotations"][SKIP] = json!(skip);
        let ended = has_ended(&cluster.install, &cluster.history, &cluster.objects[&sync]);
        assert_eq!(ended, expected, "{phase} {skip}");
    }
}

#[test]
fn trouble_with_redis_is_told_of_redis_and_all_else_of_the_root() {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let sync = cluster.install.sync.clone();
    let redis = ObjectId::new(Kind::Deployment, "argocd", REDIS);
    let condition = |message: &str| json!({"type": "ComparisonError", "message": message});
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!([
        condition("dial tcp 10.0.0.1:6379: i/o timeout"),
        condition("app path does not exist"),
        condition("app path does not exist"),
    ]);
    assert_eq!(
        of_roots(&cluster, &cluster.observed()),
        [
            (Class::RedisDown, redis),
            (Class::PathMissing, sync.clone()),
        ]
    );
    // That another object has the same fault says nothing of this one.
    let mut found = vec![Finding::new(Class::PathMissing, &deployment("another"), "")];
    let observed = cluster.observed();
    roots(
        cluster.now,
        &cluster.install,
        &observed,
        &cluster.history,
        &mut found,
    );
    assert_eq!(found.len(), 3);
}
