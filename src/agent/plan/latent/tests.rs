use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::Pod;
use crate::agent::plan::project::lease_of;
use crate::agent::plan::tests::{Cluster, deployment, install, start};
use crate::wire::api::EngineKind;

mod reached;

const APP: &str = "source-controller";

fn pod(age: i64) -> Pod {
    Pod {
        app: APP.to_owned(),
        created: Some(start() - Duration::seconds(age)),
        running: Some(start() - Duration::seconds(age)),
        ready: true,
        ..Pod::default()
    }
}

/// A Lease that `holder` renewed this many seconds before it was read.
fn observed(holder: &str, renewed: i64, pods: &[(&str, Pod)]) -> Observed {
    let lease = Lease {
        uid: "lease".to_owned(),
        holder: holder.to_owned(),
        acquired: None,
        renewed: start() - Duration::seconds(renewed),
        seen: start(),
    };
    Observed {
        leases: [(lease_of(APP, None), lease)].into(),
        pods: pods
            .iter()
            .map(|(name, pod)| ((*name).to_owned(), Arc::new(pod.clone())))
            .collect(),
        ..Observed::default()
    }
}

fn classes(observed: &Observed) -> Vec<(Class, String)> {
    let mut found = Vec::new();
    latent(start(), &install(), observed, &mut found);
    let named = found.into_iter().map(|f| (f.class, f.object.name));
    named.collect()
}

#[test]
fn leases_tell_a_stuck_leader_and_a_wrong_clock() {
    let app = || APP.to_owned();
    let pulling = Pod {
        running: None,
        ..pod(500)
    };
    for (what, observed, expected) in [
        ("renewed", observed("old", 3, &[("new", pod(500))]), vec![]),
        (
            "its holder lives",
            observed("old", 90, &[("old", pod(500))]),
            vec![],
        ),
        ("nobody waits", observed("old", 90, &[]), vec![]),
        (
            "the next one is young",
            observed("old", 90, &[("new", pod(20))]),
            vec![],
        ),
        (
            "stuck",
            observed("old", 71, &[("new", pod(71))]),
            vec![(Class::LeaderStuck, app())],
        ),
        ("not yet", observed("old", 70, &[("new", pod(71))]), vec![]),
        ("young", observed("old", 71, &[("new", pod(70))]), vec![]),
        (
            "the next one does not run",
            observed("old", 90, &[("new", pulling)]),
            vec![],
        ),
        ("given back", observed("", 90, &[("new", pod(500))]), vec![]),
        (
            "given back by one whose clock is ahead",
            observed("", -16, &[("new", pod(500))]),
            vec![],
        ),
        (
            "ahead",
            observed("old", -16, &[("old", pod(500))]),
            vec![(Class::ClockSkew, app())],
        ),
        (
            "a little ahead",
            observed("old", -15, &[("old", pod(500))]),
            vec![],
        ),
    ] {
        assert_eq!(classes(&observed), expected, "{what}");
    }
    // Where there are more Pods than are known, its holder may be one of them.
    let mut many = observed("old", 71, &[("new", pod(71))]);
    many.pods_cut = true;
    assert_eq!(classes(&many), []);
}

/// F56.
#[test]
fn a_kubernetes_that_is_too_old_is_told_and_nothing_else() {
    let mut install = install();
    let mut bundle = install.bundle.as_ref().clone();
    bundle.version = "2.9.4".to_owned();
    install.bundle = Arc::new(bundle);
    let least = release::kubernetes(install.traits.kind, "2.9.4").unwrap();
    for (minor, told) in [(None, false), (Some(least), false), (Some(least - 1), true)] {
        let observed = Observed {
            kubernetes: minor,
            ..Observed::default()
        };
        let mut found = Vec::new();
        latent(start(), &install, &observed, &mut found);
        let said: Vec<(Class, String)> = found.into_iter().map(|f| (f.class, f.evidence)).collect();
        let text = format!(
            "Kubernetes is 1.{}; version 2.9.4 of the engine needs 1.{least} or later",
            least - 1
        );
        let expected = told.then_some((Class::KubernetesUnsupported, text));
        assert_eq!(said, Vec::from_iter(expected), "{minor:?}");
    }
}

#[test]
fn controllers_in_another_namespace_are_a_second_install() {
    let namespaces = |all: &[&str]| Observed {
        elsewhere: all.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>(),
        ..Observed::default()
    };
    assert_eq!(classes(&namespaces(&["flux-system"])), []);
    assert_eq!(
        classes(&namespaces(&["flux-system", "gitops"])),
        [(Class::TwoInstalls, "flux-system".to_owned())]
    );
}

/// F46, F47: both installs are named, and by how much a clock is ahead.
#[test]
fn a_second_install_and_a_wrong_clock_are_told_in_full() {
    let mut seen = observed("old", -40, &[("old", pod(500))]);
    seen.elsewhere = ["flux-system", "gitops", "ops"].map(str::to_owned).into();
    let mut found = Vec::new();
    latent(start(), &install(), &seen, &mut found);
    let said: Vec<(Class, &str)> = found
        .iter()
        .map(|f| (f.class, f.evidence.as_str()))
        .collect();
    let expected = [
        (
            Class::ClockSkew,
            "Pod old renewed its Lease 40 s in the future",
        ),
        (
            Class::TwoInstalls,
            "controllers of flux run in namespace flux-system, which is this install, and in gitops, ops",
        ),
    ];
    assert_eq!(said, expected);
}

/// F46: what two of them bring, Argo CD names.
#[test]
fn what_the_root_shares_with_a_second_argo_cd_is_told_with_it() {
    let cluster = Cluster::working_of(EngineKind::Argocd);
    let said = |warns: bool, other: &[&str]| {
        let mut observed = cluster.observed();
        observed.elsewhere = other.iter().map(|n| (*n).to_owned()).collect();
        let mut root = observed.objects[&cluster.install.sync].as_ref().clone();
        if warns {
            let message = "ConfigMap/a is part of applications argocd/root and gitops/root";
            root.fields["status"]["conditions"] =
                json!([{"type": "SharedResourceWarning", "message": message}]);
        }
        let root = Arc::new(root);
        observed.objects.insert(cluster.install.sync.clone(), root);
        let mut found = Vec::new();
        latent(cluster.now, &cluster.install, &observed, &mut found);
        let two = found.into_iter().filter(|f| f.class == Class::TwoInstalls);
        two.map(|f| f.evidence).collect::<Vec<_>>()
    };
    let two = "controllers of argocd run in namespace argocd, which is this install, and in gitops";
    let shares = "; the root says: ConfigMap/a is part of applications argocd/root and gitops/root";
    assert_eq!(said(false, &["argocd", "gitops"]), [two]);
    assert_eq!(
        said(true, &["argocd", "gitops"]),
        [format!("{two}{shares}")]
    );
    // Two Applications of one install may share an object, too.
    assert_eq!(said(true, &["argocd"]), [""; 0]);
}

/// F47: Go's words name both times; of others it is known only that a certificate is of the future.
#[test]
fn a_certificate_that_is_not_valid_yet_tells_of_a_wrong_clock() {
    let x509 =
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid";
    let by = "a certificate is not valid before 2026-11-26T10:00:00.000Z; the clock that it was met with was 3600 s before that";
    let cluster = Cluster::working();
    let source = ObjectId::new(Kind::OciRepository, "apps", "web");
    let sync = cluster.install.sync.clone();
    let app = ObjectId::new(Kind::Application, "flux-system", "web");
    let quoted = "\"https://r.test/v2/\": ";
    let compared = "current time 2026-11-26T09:00:00Z is before 2026-11-26T10:00:00Z";
    for (object, said, whose) in [
        (
            &source,
            format!("{quoted}{x509}: {compared}"),
            Some((APP, by)),
        ),
        (
            &source,
            format!("{x509}: {compared}, retrying"),
            Some((APP, by)),
        ),
        (
            &sync,
            format!("{x509}: {compared}"),
            Some(("kustomize-controller", by)),
        ),
        (
            &app,
            format!("rpc error: code = Unknown desc = {x509}: {compared}"),
            Some((REPO_SERVER, by)),
        ),
        (
            &deployment("helm-controller"),
            format!("failed calling webhook \"a.test\": {x509}: {compared}"),
            Some(("helm-controller", by)),
        ),
        (
            &source,
            format!("{x509}: current time now is before then"),
            Some((APP, "a certificate is not valid yet")),
        ),
        // It has expired: no clock is wrong for that.
        (
            &source,
            format!("{x509}: current time 2026-11-26T10:00:00Z is after 2026-11-26T09:00:00Z"),
            None,
        ),
        (
            &source,
            "x509: certificate signed by unknown authority".to_owned(),
            None,
        ),
    ] {
        let mut found = vec![Finding::new(Class::ApplyFailed, object, &said)];
        clocks(&cluster.install, &mut found);
        let of_itself = Finding::new(Class::ApplyFailed, object, &said);
        let skew = whose.map(|(name, text)| {
            let text = format!("{object} says: {text}");
            Finding::new(Class::ClockSkew, &deployment(name), text)
        });
        let expected: Vec<Finding> = [of_itself].into_iter().chain(skew).collect();
        assert_eq!(found, expected, "{said}");
    }
}

/// F47: as long as the Lease says more of a controller's clock, that is told; and each clock is told of once.
#[test]
fn a_wrong_clock_is_told_once() {
    let cluster = Cluster::working();
    let said = "x509: certificate has expired or is not yet valid: \
                current time 2026-11-26T09:00:00Z is before 2026-11-26T10:00:00Z";
    let id = |name: &str| ObjectId::new(Kind::HelmRepository, "apps", name);
    let app = ObjectId::new(Kind::Deployment, "flux-system", APP);
    let lease = Finding::new(
        Class::ClockSkew,
        &app,
        "Pod a renewed its Lease 40 s in the future",
    );
    let failed = |name: &str| Finding::new(Class::ArtifactUnreachable, &id(name), said);
    let mut found = vec![failed("a"), failed("b")];
    clocks(&cluster.install, &mut found);
    let of_a = "HelmRepository apps/a says: a certificate is not valid before 2026-11-26T10:00:00.000Z; \
                the clock that it was met with was 3600 s before that";
    let once = Finding::new(Class::ClockSkew, &app, of_a);
    assert_eq!(found, [failed("a"), failed("b"), once]);
    let mut found = vec![lease.clone(), failed("a")];
    clocks(&cluster.install, &mut found);
    assert_eq!(found, [lease, failed("a")]);
}

/// F9: of two Pods of the same version none is an old one, which a rollout would have to be mended for.
#[test]
fn a_pod_that_does_not_come_up_beside_another_one_is_half_rolled() {
    for (updated, begins) in [
        (1, "the new Pod does not come up, an old one serves: "),
        (
            2,
            "a Pod is not up, another one of the same version serves: ",
        ),
    ] {
        let cluster = Cluster::working();
        let mut observed = cluster.observed();
        let id = ObjectId::new(Kind::Deployment, "flux-system", APP);
        let mut live = observed.objects[&id].as_ref().clone();
        let status = &mut live.fields["status"];
        (status["replicas"], status["updatedReplicas"]) = (json!(2), json!(updated));
        status["unavailableReplicas"] = json!(1);
        observed.objects.insert(id, Arc::new(live));
        let new = Pod {
            waiting: Some(("ImagePullBackOff".to_owned(), "no such image".to_owned())),
            ..pod(90)
        };
        observed.pods.insert("new".to_owned(), Arc::new(new));
        let mut found = Vec::new();
        latent(cluster.now, &cluster.install, &observed, &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].class, Class::HalfRolled);
        let evidence = &found[0].evidence;
        assert!(evidence.starts_with(begins), "{evidence}");
        assert!(evidence.contains("no such image"), "{evidence}");
    }
}
