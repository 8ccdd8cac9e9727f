//! Who does not reach the Git host, since when, and who met what is told of.

use super::*;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::plan::state::{OwnLook, OwnRead};

/// F33.
#[test]
fn an_engine_that_alone_does_not_reach_the_git_host_is_kept_from_it() {
    let minute = Duration::minutes(1);
    let mut cluster = Cluster::working();
    let id = cluster.install.source.clone();
    let since = cluster.now;
    let say = |cluster: &mut Cluster, reason: &str, message: &str| {
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"]["conditions"] = json!([{
            "type": "Ready", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": rfc3339(since),
        }]);
    };
    let dial = "failed to list refs: dial tcp 192.0.2.1:22: i/o timeout";
    let git = "GitOperationFailed";
    let ever = Some((-minute, minute));
    for (message, read, class) in [
        (dial, None, Class::GitUnreachable),
        // Not looked since.
        (
            dial,
            Some((-minute * 4, -minute * 2)),
            Class::GitUnreachable,
        ),
        // Before the engine complained anew.
        (dial, Some((-minute * 2, -minute)), Class::PolicyBlocks),
        // In the second of which the engine says that it complained.
        (
            dial,
            Some((Duration::milliseconds(470), minute)),
            Class::PolicyBlocks,
        ),
        // It was away, and the engine has not tried again.
        (dial, Some((minute, minute)), Class::GitUnreachable),
        (dial, ever, Class::PolicyBlocks),
        ("couldn't find remote ref", ever, Class::GitUnreachable),
        ("ssh: unable to authenticate", ever, Class::KeyRevoked),
    ] {
        say(&mut cluster, git, message);
        let mut observed = cluster.observed();
        let read = read.map(|(from, last)| OwnRead {
            since: since + from,
            last: since + last,
        });
        observed.own_look = read.map_or(OwnLook::Failed, OwnLook::Read);
        let plan = crate::agent::plan::plan(
            since + minute,
            &cluster.install,
            &observed,
            &cluster.history,
        );
        let found: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(found, [class], "{message} {read:?}");
    }
}

/// F33: a repo-server that is kept from the Git host without a word has no answer in time, for each of its Applications.
#[test]
fn an_argo_cd_that_alone_does_not_reach_the_git_host_is_kept_from_it() {
    let late = "Failed to load target state: rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let cut = "rpc error: code = DeadlineExceeded desc = stream terminated by RST_STREAM with error code: CANCEL";
    let gone = "Failed to load target state: rpc error: code = Unavailable desc = no children to pick from";
    let refused = "Failed to load target state: failed to list refs: dial tcp 192.0.2.1:22: connect: connection refused";
    let fetched =
        "Failed to fetch default: ssh: connect to host git.test port 22: Connection timed out";
    let unnamed = "Failed to fetch default: ssh: Could not resolve hostname git.test: Temporary failure in name resolution";
    let (read, none) = (Some(Duration::minutes(1)), None);
    for (message, own, up, class) in [
        (late, none, true, Class::GitUnreachable),
        (late, read, true, Class::PolicyBlocks),
        (cut, none, true, Class::GitUnreachable),
        (cut, read, true, Class::PolicyBlocks),
        (refused, read, true, Class::PolicyBlocks),
        (refused, none, true, Class::GitUnreachable),
        (fetched, read, true, Class::PolicyBlocks),
        (unnamed, read, true, Class::PolicyBlocks),
        (unnamed, none, true, Class::GitUnreachable),
        (late, read, false, Class::ArtifactUnreachable),
        (gone, read, true, Class::ArtifactUnreachable),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let said = json!([{
            "type": "ComparisonError", "message": message,
            "lastTransitionTime": rfc3339(cluster.now),
        }]);
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"]["conditions"] = said.clone();
        let child = ObjectId::new(Kind::Application, "argocd", "shop");
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {}, "status": {"conditions": said},
        });
        cluster.applications.insert(child.clone(), object);
        let server = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
        if !up {
            let live = cluster.objects.get_mut(&server).unwrap();
            live.fields["status"]["availableReplicas"] = json!(0);
        }
        let mut observed = cluster.observed();
        let read = own.map(|after| OwnRead {
            since: cluster.now - after,
            last: cluster.now + after,
        });
        observed.own_look = read.map_or(OwnLook::Failed, OwnLook::Read);
        let now = cluster.now + Duration::minutes(1);
        let plan = crate::agent::plan::plan(now, &cluster.install, &observed, &cluster.history);
        let of_git = plan.findings.iter().filter(|f| f.object != server);
        let found: Vec<_> = of_git.map(|f| (f.class, &f.object)).collect();
        assert_eq!(
            found,
            [(class, &root), (class, &child)],
            "{message} {own:?}"
        );
    }
}

/// F33: the complaint is of a look that began while the host was away, too, and its words have not changed since.
#[test]
fn what_argo_cd_still_says_after_another_look_is_said_anew() {
    let refused = "failed to list refs: dial tcp 192.0.2.1:22: connect: connection refused";
    for (looked, class) in [
        (-10, Class::GitUnreachable),
        (2, Class::GitUnreachable),
        (10, Class::PolicyBlocks),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let (now, second) = (cluster.now, Duration::seconds(1));
        let root = cluster.install.sync.clone();
        let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
        status["reconciledAt"] = json!(rfc3339(now + second * looked));
        status["conditions"] = json!([{
            "type": "ComparisonError", "message": refused, "lastTransitionTime": rfc3339(now),
        }]);
        let mut observed = cluster.observed();
        observed.own_look = OwnLook::Read(OwnRead {
            since: now + second * 3,
            last: now + second * 20,
        });
        let at = now + second * 60;
        let plan = crate::agent::plan::plan(at, &cluster.install, &observed, &cluster.history);
        let found: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(found, [class], "{looked}");
    }
}

/// F33: a look takes minutes then, and a controller that was started again would not be quicker.
#[test]
fn a_controller_that_waits_for_git_is_not_called_wedged() {
    let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    let cut = "rpc error: code = DeadlineExceeded desc = stream terminated by RST_STREAM with error code: CANCEL";
    for (message, wedged) in [(late, false), (cut, false), ("no such file", true)] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let root = cluster.install.sync.clone();
        let asked = rfc3339(cluster.now);
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["metadata"]["annotations"][PROBED_AT] = json!(asked);
        live.fields["metadata"]["annotations"][REFRESH] = json!("normal");
        live.fields["status"]["conditions"] =
            json!([{"type": "ComparisonError", "message": message}]);
        for (after, called) in [(95, wedged), (331, true)] {
            let mut later = cluster.observed();
            let now = cluster.now + Duration::seconds(after);
            for scope in later.scopes.values_mut() {
                scope.answered = Some(now);
            }
            later.pods_at = Some(now);
            let plan = crate::agent::plan::plan(now, &cluster.install, &later, &cluster.history);
            let found = plan.findings.iter().any(|f| f.class == Class::QueueWedged);
            assert_eq!(found, called, "{message} after {after} s");
        }
    }
}

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
