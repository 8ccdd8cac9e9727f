//! Applications below the root that were looked at too early: before their project, the host keys, the signers or the Git host were there.

use std::sync::Arc;

use super::*;
use crate::agent::engine::argocd::PROBED_FROM;
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::{install_of, install_signed_of};

fn child(trouble: Option<(&str, &str)>) -> Child {
    Child {
        trouble: trouble.map(|(kind, text)| (kind.to_owned(), text.to_owned())),
        ..Child::default()
    }
}

#[test]
fn applications_that_missed_their_project_the_host_keys_or_the_git_host_are_asked_again() {
    let project = (
        "InvalidSpecError",
        "application referencing project default",
    );
    let host = ("ComparisonError", "knownhosts: key is unknown");
    let other = ("ComparisonError", "app path does not exist");
    let late = (
        "ComparisonError",
        "code = DeadlineExceeded desc = context deadline exceeded",
    );
    let dial = (
        "ComparisonError",
        "failed to list refs: dial tcp: i/o timeout",
    );
    let second = SECOND;
    for (kind, trouble, asked, mounts, due) in [
        (Kind::Application, Some(project), None, false, true),
        (Kind::ApplicationSet, Some(project), None, false, false),
        (Kind::Application, Some(other), None, true, false),
        (Kind::Application, None, None, true, false),
        (Kind::Application, Some(host), None, true, true),
        (Kind::Application, Some(host), None, false, false),
        (Kind::Application, Some(project), Some(MISLED), false, true),
        (
            Kind::Application,
            Some(project),
            Some(MISLED - second),
            false,
            false,
        ),
        (Kind::Application, Some(late), None, false, true),
        (
            Kind::Application,
            Some(dial),
            Some(SECOND * 300),
            false,
            true,
        ),
        (
            Kind::Application,
            Some(dial),
            Some(SECOND * 299),
            false,
            false,
        ),
    ] {
        let cluster = Cluster::working_of(EngineKind::Argocd);
        let id = ObjectId::new(kind, "argocd", "a");
        let mut observed = cluster.observed();
        observed.children = Arc::new([(id.clone(), child(trouble))].into());
        let mut history = cluster.history.clone();
        if let Some(ago) = asked {
            history.nudged.insert(id.clone(), cluster.now - ago);
        }
        let moment = Moment {
            mounts,
            reached: true,
            every: Duration::minutes(5),
            unsigned: None,
        };
        let steps: Vec<Step> = misled(cluster.now, &observed, &history, moment).collect();
        let expected = if due { vec![nudge(&id)] } else { vec![] };
        assert_eq!(steps, expected, "{kind} {trouble:?} {asked:?} {mounts}");
    }
}

/// W43: what Argo CD made of a commit before anybody had to sign says nothing of a signature, and below a root that follows a signed
/// head again some still refuse the one before.
#[test]
fn applications_that_refuse_a_head_are_asked_again_once_the_root_does_not() {
    let refusal = "Target revision a in Git is not signed, but a signature is required";
    let unsigned = child(Some(("ComparisonError", refusal)));
    for (signed, root_refuses, written, asked, due) in [
        (true, false, None, None, true),
        (true, false, None, Some(Duration::seconds(60)), false),
        (true, false, None, Some(Duration::minutes(5)), true),
        (true, false, Some(Duration::minutes(4)), Some(MISLED), true),
        (true, false, Some(Duration::minutes(4)), Some(SECOND), false),
        (true, false, Some(Duration::minutes(6)), Some(MISLED), false),
        (true, true, Some(SECOND), None, false),
        // By people's own word, where nobody has to sign by the hub's.
        (false, false, None, None, false),
    ] {
        let install = if signed {
            install_signed_of(EngineKind::Argocd)
        } else {
            install_of(EngineKind::Argocd)
        };
        let mut cluster = Cluster::working_with(install);
        let id = ObjectId::new(Kind::Application, "argocd", "a");
        cluster.history.host_keys = written.map(|ago| cluster.now - ago);
        if let Some(ago) = asked {
            cluster.history.nudged.insert(id.clone(), cluster.now - ago);
        }
        let mut observed = cluster.observed();
        observed.children = Arc::new([(id.clone(), unsigned.clone())].into());
        let root = observed.objects.get_mut(&cluster.install.sync).unwrap();
        if root_refuses {
            let said = json!([{"type": "ComparisonError", "message": refusal}]);
            Arc::make_mut(root).fields["status"]["conditions"] = said;
        }
        let moment = Moment::of(
            (cluster.now, &cluster.history),
            &cluster.install,
            root,
            true,
            Duration::minutes(5),
        );
        let steps: Vec<Step> = misled(cluster.now, &observed, &cluster.history, moment).collect();
        let expected = if due { vec![nudge(&id)] } else { vec![] };
        assert_eq!(steps, expected, "{root_refuses} {written:?} {asked:?}");
    }
}

#[test]
fn of_many_that_missed_their_project_a_few_are_asked_at_a_time() {
    let project = (
        "InvalidSpecError",
        "application referencing project default",
    );
    let many = (0..20).map(|n| {
        let id = ObjectId::new(Kind::Application, "argocd", &n.to_string());
        (id, child(Some(project)))
    });
    let cluster = Cluster::working_of(EngineKind::Argocd);
    let mut observed = cluster.observed();
    observed.children = Arc::new(many.collect());
    let planned = |observed: &Observed| {
        let (steps, _) = probes(cluster.now, &cluster.install, observed, &cluster.history);
        steps
            .iter()
            .filter(|s| observed.children.contains_key(&s.target))
            .count()
    };
    assert_eq!(planned(&observed), MAX_MISLED);
    let project = ObjectId::new(Kind::AppProject, "argocd", PROJECT);
    observed.objects.remove(&project);
    assert_eq!(planned(&observed), 0, "there is no project to know of");
}

/// W20: one that found no repo-server finds it once the root does, also where it was asked for another reason just before. What may end
/// the repo-server is not asked so soon.
#[test]
fn an_application_that_found_no_repo_server_is_asked_again_soon() {
    let dial = "code = Unavailable desc = connection error: dial tcp 10.0.0.1:8081: connect: connection refused";
    let nobody = "code = Unavailable desc = no children to pick from";
    let ended = "code = Unavailable desc = error reading from server: read tcp 10.0.0.1:8081: connection reset by peer";
    for (text, reached, asked, due) in [
        (dial, true, MISLED, true),
        (dial, true, MISLED - SECOND, false),
        (dial, false, MISLED, false),
        (nobody, true, MISLED, true),
        (ended, true, MISLED, false),
    ] {
        let cluster = Cluster::working_of(EngineKind::Argocd);
        let id = ObjectId::new(Kind::Application, "argocd", "a");
        let mut observed = cluster.observed();
        observed.children = Arc::new([(id.clone(), child(Some(("ComparisonError", text))))].into());
        let mut history = cluster.history.clone();
        history.nudged.insert(id.clone(), cluster.now - asked);
        let moment = Moment {
            mounts: false,
            reached,
            every: Duration::minutes(5),
            unsigned: None,
        };
        let steps: Vec<Step> = misled(cluster.now, &observed, &history, moment).collect();
        let expected = if due { vec![nudge(&id)] } else { vec![] };
        assert_eq!(steps, expected, "{text} {reached} {asked}");
    }
}

/// F33: while the root does not reach the Git host, or has not said that it does, the others need not be asked.
#[test]
fn an_application_that_did_not_reach_the_git_host_is_asked_once_the_root_does() {
    let late = "code = DeadlineExceeded desc = context deadline exceeded";
    let id = ObjectId::new(Kind::Application, "argocd", "shop");
    for (said, answered, asked) in [
        (Some(late), true, false),
        (None, false, false),
        (None, true, true),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let now = cluster.now;
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        let looked = if answered { now } else { now - SECOND };
        live.fields["metadata"]["annotations"][PROBED_AT] = json!(rfc3339(now));
        live.fields["metadata"]["annotations"][PROBED_FROM] = json!(rfc3339(now - SECOND));
        live.fields["status"]["reconciledAt"] = json!(rfc3339(looked));
        if let Some(message) = said {
            live.fields["status"]["conditions"] =
                json!([{"type": "ComparisonError", "message": message}]);
        }
        let mut observed = cluster.observed();
        observed.children = Arc::new([(id.clone(), child(Some(("ComparisonError", late))))].into());
        let (steps, _) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
        let below = steps.contains(&nudge(&id));
        assert_eq!(below, asked, "{said:?} {answered}: {steps:?}");
    }
}
