//! Controllers that a commit changed: when it shows that one does not come up, or runs and is of no use.

use super::*;
use crate::agent::engine::flux::{HELM, canary};
use crate::agent::plan::state::{Child, Past};
use crate::agent::plan::tests::{flux_with_helm, install_with};
use crate::agent::plan::undecodable::REASON;

fn controller(namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(Kind::Deployment, namespace, name)
}

fn harmed(cluster: &Cluster, id: &ObjectId) -> Option<(Class, String)> {
    let (now, observed) = (cluster.now, cluster.observed());
    let object = (id, &cluster.objects[id]);
    harm(now, &cluster.install, &observed, &cluster.history, object)
}

/// F9, F48: ten minutes where nothing serves, and one beside a Pod of the old version that does. A Pod that is one too many is none of
/// the new version.
#[test]
fn a_new_version_has_its_time_to_come_up() {
    const NAME: &str = "kustomize-controller";
    let down = json!({"observedGeneration": 99});
    let served = |unavailable: i64| {
        json!({
            "observedGeneration": 99, "availableReplicas": 1, "updatedReplicas": 1,
            "unavailableReplicas": unavailable,
        })
    };
    let stuck = (Class::EngineUpgradeStuck, "has not come up for 10 min");
    let beside = (
        Class::BadEngineCommit,
        "the new Pod does not come up, an old one serves: ErrImagePull: no such tag ()",
    );
    for (status, waits, seconds, expected) in [
        (down.clone(), false, 600, None),
        (down, false, 601, Some(stuck)),
        (served(1), true, 60, None),
        (served(1), true, 61, Some(beside)),
        (served(1), false, 601, None),
        (served(0), true, 601, None),
    ] {
        let mut cluster = working(EngineKind::Flux, true);
        let id = controller("flux-system", NAME);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.written = Some(cluster.now - Duration::seconds(seconds));
        live.fields["status"] = status.clone();
        if waits {
            let pod = Pod {
                app: NAME.to_owned(),
                waiting: Some(("ErrImagePull".to_owned(), "no such tag".to_owned())),
                ..Pod::default()
            };
            cluster.pods.insert(NAME.to_owned(), pod);
        }
        let expected = expected.map(|(class, text)| (class, text.to_owned()));
        assert_eq!(harmed(&cluster, &id), expected, "{status} {seconds}");
    }
}

/// A Pod of a controller that waits for its image, in vain.
fn waits(name: &str, revision: &str) -> Pod {
    Pod {
        app: name.to_owned(),
        revision: revision.to_owned(),
        waiting: Some(("ErrImagePull".to_owned(), "no such tag".to_owned())),
        ..Pod::default()
    }
}

const BESIDE: &str =
    "the new Pod does not come up, an old one serves: ErrImagePull: no such tag ()";
const LEFT: &str = "not all new Pods come up, an old one is left: ErrImagePull: no such tag ()";

/// F43: one of several Pods of a version may fail by its node. Only where Pods of the version before are left for it, the rollout does
/// not go on.
#[test]
fn a_version_is_not_bad_for_one_of_its_pods_while_another_one_works() {
    const NAME: &str = "kustomize-controller";
    for (all, updated, available, seconds, expected) in [
        (2, 2, 1, 601, None),
        (3, 3, 2, 3_600, None),
        (2, 1, 1, 61, Some(BESIDE)),
        (3, 2, 1, 61, Some(BESIDE)),
        (3, 2, 2, 600, None),
        (3, 2, 2, 601, Some(LEFT)),
    ] {
        let mut cluster = working(EngineKind::Flux, true);
        let id = controller("flux-system", NAME);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.written = Some(cluster.now - Duration::seconds(seconds));
        live.fields["status"] = json!({
            "observedGeneration": 99, "replicas": all, "updatedReplicas": updated,
            "availableReplicas": available, "unavailableReplicas": all - available,
        });
        cluster.pods.insert("new".to_owned(), waits(NAME, ""));
        let expected = expected.map(|text| (Class::BadEngineCommit, text.to_owned()));
        let what = format!("{all} {updated} {available} {seconds}");
        assert_eq!(harmed(&cluster, &id), expected, "{what}");
    }
}

/// F43: a StatefulSet has no number of those that are not available, and its Pods say of which version they are.
#[test]
fn of_a_stateful_set_the_pods_of_the_new_version_tell() {
    const NAME: &str = "argocd-application-controller";
    for (updated, available, revision, expected) in [
        (1, 2, "new", Some(BESIDE)),
        (1, 2, "old", None),
        (3, 2, "new", None),
    ] {
        let mut cluster = working(EngineKind::Argocd, true);
        let id = ObjectId::new(Kind::StatefulSet, "argocd", NAME);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.written = Some(cluster.now - Duration::seconds(61));
        live.fields["status"] = json!({
            "observedGeneration": 99, "replicas": 3, "updatedReplicas": updated,
            "availableReplicas": available, "updateRevision": "new",
        });
        cluster.pods.insert("one".to_owned(), waits(NAME, revision));
        let expected = expected.map(|text| (Class::BadEngineCommit, text.to_owned()));
        let what = format!("{updated} {available} {revision}");
        assert_eq!(harmed(&cluster, &id), expected, "{what}");
    }
}

/// F48, W25: the node's clock may show another time than the API server's.
#[test]
fn a_version_is_as_old_as_the_agent_has_seen_it() {
    let stuck = (
        Class::EngineUpgradeStuck,
        "has not come up for 10 min".to_owned(),
    );
    for ahead in [-600, 0, 600] {
        for (seconds, is_stuck) in [(600, false), (601, true)] {
            let mut cluster = working(EngineKind::Flux, true);
            let id = controller("flux-system", "kustomize-controller");
            let live = cluster.objects.get_mut(&id).unwrap();
            live.written = Some(cluster.now - Duration::seconds(ahead));
            live.fields["status"] = json!({"observedGeneration": 99});
            let (install, observed) = (cluster.install.clone(), cluster.observed());
            for passed in [0, seconds] {
                cluster.now += Duration::seconds(passed);
                cluster.history.noted(cluster.now, &install, &observed);
            }
            let expected = is_stuck.then(|| stuck.clone());
            assert_eq!(harmed(&cluster, &id), expected, "{ahead} {seconds}");
        }
    }
}

/// W18, F32: a look from before, or from while it was changed, may be of the one before.
#[test]
fn a_part_of_argo_cd_is_of_no_use_once_the_root_complains_of_it_after_its_change() {
    let parts = "rpc error: code = Unavailable desc = connection error";
    let cache = "dial tcp 10.0.0.1:6379: connect: connection refused";
    let git = "app path does not exist";
    for (name, message, seconds, useless) in [
        (REPO_SERVER, parts, 29, false),
        (REPO_SERVER, parts, 30, true),
        (REPO_SERVER, cache, 30, false),
        (REPO_SERVER, git, 30, false),
        (REDIS, cache, 29, false),
        (REDIS, cache, 30, true),
        (REDIS, parts, 30, false),
        (REDIS, git, 30, false),
    ] {
        let mut cluster = working(EngineKind::Argocd, true);
        cluster.now = cluster.now.replace_nanosecond(0).unwrap();
        let id = controller("argocd", name);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.written = Some(cluster.now);
        let looked = rfc3339(cluster.now + Duration::seconds(seconds));
        let complaint = json!({"type": "ComparisonError", "message": message});
        root_says(
            &mut cluster,
            &json!({"conditions": [complaint], "reconciledAt": looked}),
        );
        cluster.now += Duration::MINUTE;
        let text = format!("runs, but Application argocd/linesman: ComparisonError: {message}");
        let expected = useless.then_some((Class::BadEngineCommit, text));
        assert_eq!(
            harmed(&cluster, &id),
            expected,
            "{name} {message} {seconds}"
        );
    }
}

/// Flux with helm-controller, too.
fn with_helm() -> Cluster {
    let mut cluster = Cluster::working_with(install_with(flux_with_helm()));
    cluster.now += Duration::HOUR;
    cluster.now = cluster.now.replace_nanosecond(0).unwrap();
    cluster
}

/// F18, W22: while one of a kind cannot be read its controller hears of none, and it lists them again with a pause that has grown. What
/// cannot be read of another kind keeps it from nothing.
#[test]
fn an_upgrade_is_not_called_off_for_the_silence_that_an_unreadable_object_brought() {
    let cluster = with_helm();
    let (now, install) = (cluster.now, &cluster.install);
    let ago = |seconds: i64| now - Duration::seconds(seconds);
    let [of_root, of_release] =
        ["kustomize-controller", HELM].map(|n| controller("flux-system", n));
    let (root, release) = (install.sync.clone(), canary("flux-system"));
    let [applies, releases] = [Kind::Kustomization, Kind::HelmRelease];
    for (id, asked, unread, over, broken) in [
        (&of_root, &root, None, None, true),
        (&of_root, &root, None, Some(30), false),
        (&of_root, &root, None, Some(31), true),
        (&of_root, &root, Some(applies), Some(0), false),
        (&of_root, &root, Some(releases), Some(0), true),
        (&of_release, &release, None, None, true),
        (&of_release, &release, None, Some(30), false),
        (&of_release, &release, None, Some(31), true),
        (&of_release, &release, Some(releases), Some(0), false),
        (&of_release, &release, Some(applies), Some(0), true),
    ] {
        let mut observed = cluster.observed();
        let mut history = History {
            blinded: over.map(ago),
            ..History::default()
        };
        if let Some(kind) = unread {
            let one = ObjectId::new(kind, "apps", "one");
            let past = Past {
                since: Some(ago(60)),
                ..Past::default()
            };
            let child = Child {
                trouble: Some((REASON.to_owned(), "x".to_owned())),
                ..Child::default()
            };
            let fault = (Class::UndecodableObject, one.clone());
            history.faults.insert(fault, past);
            observed.children = Arc::new([(one, child)].into());
        }
        let question = Arc::make_mut(observed.objects.get_mut(asked).unwrap());
        question.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(ago(60)));
        let changed = Arc::make_mut(observed.objects.get_mut(id).unwrap());
        changed.written = Some(ago(90));
        let object = (id, &*observed.objects[id]);
        let text = format!("runs, but does not answer for {asked}");
        let expected = broken.then_some((Class::BadEngineCommit, text));
        let found = harm(now, install, &observed, &history, object);
        assert_eq!(found, expected, "{asked} {unread:?} {over:?}");
    }
}
