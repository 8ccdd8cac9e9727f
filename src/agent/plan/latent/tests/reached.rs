//! Who does not reach the Git host, since when, and who met what is told of.

use super::*;

/// A root of Flux' that says so with these conditions: type, status, and how many seconds after the start.
fn saying(conditions: &[(&str, &str, i64)]) -> Object {
    let cluster = Cluster::working();
    let mut live = cluster.objects[&cluster.install.source].clone();
    let all = conditions.iter().map(|(kind, status, seconds)| {
        let at = rfc3339(start() + Duration::seconds(*seconds));
        json!({"type": kind, "status": status, "lastTransitionTime": at})
    });
    live.fields["status"]["conditions"] = all.collect();
    live
}

/// That it is ready, or is at work on something, is no complaint; Argo CD has a type for each.
#[test]
fn a_complaint_is_of_when_a_root_said_last_that_something_is_wrong() {
    for (conditions, expected) in [
        (&[][..], None),
        (&[("Ready", "True", 1)], None),
        (&[("Reconciling", "False", 1)], None),
        (&[("Ready", "False", 1)], Some(1)),
        (
            &[("Ready", "False", 1), ("Reconciling", "False", 2)],
            Some(1),
        ),
        (&[("ComparisonError", "", 1), ("SyncError", "", 2)], Some(2)),
        (&[("SharedResourceWarning", "", 1)], None),
    ] {
        let at = complained(&saying(conditions));
        let expected = expected.map(|seconds| start() + Duration::seconds(seconds));
        assert_eq!(at, expected, "{conditions:?}");
    }
}

const DIAL: &str = "failed to list refs: dial tcp 192.0.2.1:22: i/o timeout";

/// What becomes of these where the root complains at the start, and the agent has read the catalog since long before, and last then.
fn classes_of(found: &[(Class, &ObjectId, &str)], last: OffsetDateTime) -> Vec<Class> {
    let cluster = Cluster::working();
    let root = Arc::new(saying(&[("Ready", "False", 0)]));
    let mut observed = cluster.observed();
    observed
        .objects
        .insert(cluster.install.source.clone(), root);
    observed.own_look = OwnLook::Read(OwnRead {
        since: start() - Duration::hours(1),
        last,
    });
    let found = found
        .iter()
        .map(|(class, id, text)| Finding::new(*class, id, *text));
    let mut found: Vec<Finding> = found.collect();
    blocked(&cluster.install, &observed, &mut found);
    found.into_iter().map(|f| f.class).collect()
}

/// F33: an older look than one that is due says nothing of the moment in which the engine failed.
#[test]
fn the_look_before_a_complaint_counts_for_as_long_as_the_next_one_may_take() {
    let root = Cluster::working().install.source;
    let found = [(Class::GitUnreachable, &root, DIAL)];
    for (before, expected) in [
        (BETWEEN_LOOKS, Class::GitUnreachable),
        (BETWEEN_LOOKS - Duration::SECOND, Class::PolicyBlocks),
    ] {
        assert_eq!(classes_of(&found, start() - before), [expected], "{before}");
    }
}

/// F33: with the root it is what cannot be fetched for the network that is blocked, and nothing else.
#[test]
fn what_the_catalog_brought_is_blocked_with_the_root_where_the_network_is_in_its_way() {
    let root = Cluster::working().install.source;
    let child = ObjectId::new(Kind::GitRepository, "apps", "shop");
    let (git, artifact) = (Class::GitUnreachable, Class::ArtifactUnreachable);
    let found = [
        (git, &root, DIAL),
        (git, &child, DIAL),
        (git, &child, "couldn't find remote ref"),
        (artifact, &child, "connection refused"),
    ];
    let blocked = Class::PolicyBlocks;
    let expected = [blocked, blocked, git, artifact];
    assert_eq!(classes_of(&found, start()), expected);
}

/// F47: of Argo CD the part that fetches, where it is passed on, and else the one that looks.
#[test]
fn who_met_a_certificate_is_who_reads_the_object() {
    let passed_on = "rpc error: code = Unknown desc = x509: not yet valid";
    let (flux, argocd) = (EngineKind::Flux, EngineKind::Argocd);
    for (engine, kind, text, expected) in [
        (argocd, Kind::Application, passed_on, REPO_SERVER),
        (
            argocd,
            Kind::Application,
            "x509: not yet valid",
            "argocd-application-controller",
        ),
        (flux, Kind::HelmRepository, passed_on, APP),
        (flux, Kind::Kustomization, passed_on, "kustomize-controller"),
    ] {
        let cluster = Cluster::working_of(engine);
        let id = ObjectId::new(kind, "apps", "shop");
        let finding = Finding::new(Class::ApplyFailed, &id, text);
        let found = reader(&cluster.install, &finding);
        assert_eq!(found.name, expected, "{kind} {text}");
    }
}
