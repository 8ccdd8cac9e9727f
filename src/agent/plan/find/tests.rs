use serde_json::{Value, json};

use super::*;
use crate::agent::plan::claims::Claim;
use crate::agent::plan::state::{Past, Scope};
use crate::agent::plan::tests::{Cluster, install_of, install_signed_of, start};
use crate::clock::rfc3339;

pub(super) fn id(kind: Kind, name: &str) -> ObjectId {
    let namespace = if kind.namespaced() { "flux-system" } else { "" };
    ObjectId::new(kind, namespace, name)
}

pub(super) fn source() -> ObjectId {
    id(Kind::Deployment, "source-controller")
}

pub(super) fn object(fields: Value) -> Object {
    Object {
        uid: "uid".to_owned(),
        version: 1,
        generation: 1,
        created: None,
        deleting: None,
        finalizers: Vec::new(),
        writer: "kubectl".to_owned(),
        written: Some(start()),
        ours: true,
        claim: Claim::None,
        marked: false,
        stopped: None,
        applied: None,
        emptied: Vec::new(),
        pulls: Vec::new(),
        controller: String::new(),
        fields,
    }
}

/// What is said of a working cluster after `change`.
pub(super) fn told(engine: EngineKind, change: impl FnOnce(&mut Cluster)) -> Vec<(Class, String)> {
    let mut cluster = Cluster::working_of(engine);
    change(&mut cluster);
    let observed = cluster.observed();
    let found = find(cluster.now, &cluster.install, &observed, &cluster.history);
    found.into_iter().map(|f| (f.class, f.evidence)).collect()
}

pub(super) fn flux_told(change: impl FnOnce(&mut Cluster)) -> Vec<(Class, String)> {
    told(EngineKind::Flux, change)
}

/// F38: whatever an engine says is told in one line.
#[test]
fn words_with_newlines_are_told_in_one_line() {
    let said = flux_told(|cluster| {
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"]["conditions"] = json!([{
            "type": "Ready", "status": "False", "reason": "BuildFailed", "message": "one:\n  two\n",
        }]);
    });
    let told = said
        .into_iter()
        .find(|(class, _)| *class == Class::BuildFailed);
    let words = "BuildFailed: one: two".to_owned();
    assert_eq!(told, Some((Class::BuildFailed, words)));
}

/// F1, F2, F15, F20, F23, F24, F51, F52
#[test]
fn what_is_missing_has_the_class_of_its_kind() {
    let install = install_of(EngineKind::Argocd);
    let of = |kind, name| missing(&install, &id(kind, name)).class;
    for (kind, name, class) in [
        (Kind::Namespace, "flux-system", Class::NamespaceMissing),
        (Kind::CustomResourceDefinition, "a", Class::CrdMissing),
        (Kind::ServiceAccount, "a", Class::ServiceAccountMissing),
        (Kind::Secret, flux::NAME, Class::GitSecretBad),
        (Kind::Secret, SIGNERS, Class::GitSecretBad),
        (Kind::Secret, REPOSITORY, Class::GitSecretBad),
        (Kind::ConfigMap, KNOWN_HOSTS, Class::GitSecretBad),
        (Kind::Secret, SESSION, Class::EngineSecretMissing),
        (Kind::Secret, REDIS, Class::EngineSecretMissing),
        (Kind::Secret, "another", Class::ObjectMissing),
        (Kind::ConfigMap, "another", Class::ObjectMissing),
        // The name says so of what can hold a secret only.
        (Kind::Service, REDIS, Class::ObjectMissing),
        (Kind::AppProject, "a", Class::ProjectMissing),
        (Kind::GitRepository, "a", Class::RootDeleted),
        (Kind::Kustomization, "a", Class::RootDeleted),
        (Kind::Application, "a", Class::RootDeleted),
        (Kind::Deployment, "a", Class::ObjectMissing),
    ] {
        assert_eq!(of(kind, name), class, "{kind} {name}");
    }
}

/// F1, F24: Argo CD mounts its key ring also where nobody has to sign; of the catalog's keys it is where somebody has to.
#[test]
fn a_key_ring_that_is_missing_is_of_the_catalogs_keys_where_there_are_signers() {
    let ring = ObjectId::new(Kind::ConfigMap, "argocd", KEYRING);
    for (install, class) in [
        (install_of(EngineKind::Argocd), Class::ObjectMissing),
        (install_signed_of(EngineKind::Argocd), Class::GitSecretBad),
    ] {
        assert_eq!(missing(&install, &ring).class, class);
    }
}

#[test]
fn only_what_was_answered_lately_and_wholly_is_judged() {
    let judge = |kind, answered: Option<i64>, answer| {
        let answered = answered.map(|ago| start() - Duration::seconds(ago));
        let observed = Observed {
            scopes: [(kind, Scope { answered, answer })].into(),
            ..Observed::default()
        };
        let known = known(start(), &observed, kind);
        (known, judged(&observed, kind))
    };
    let optional = Kind::ValidatingAdmissionPolicy;
    for (kind, answered, answer, expected) in [
        (Kind::Service, None, Answer::Whole, (false, true)),
        (Kind::Service, Some(90), Answer::Whole, (true, true)),
        (Kind::Service, Some(91), Answer::Whole, (false, true)),
        (Kind::Service, Some(0), Answer::Nothing, (true, true)),
        (optional, Some(0), Answer::Whole, (true, true)),
        (optional, Some(0), Answer::Nothing, (true, false)),
        (Kind::Service, Some(0), Answer::Refused, (true, false)),
    ] {
        assert_eq!(
            judge(kind, answered, answer),
            expected,
            "{kind} {answered:?}"
        );
    }
    let never = Observed::default();
    let of_nothing = (known(start(), &never, optional), judged(&never, optional));
    assert_eq!(of_nothing, (false, false));
}

#[test]
fn an_api_server_is_called_silent_after_a_minute_and_a_half() {
    for (seconds, told) in [(90, false), (91, true)] {
        let cluster = Cluster::working();
        let observed = cluster.observed();
        let now = cluster.now + Duration::seconds(seconds);
        let text = format!(
            "the API server has not answered since {}, asked for namespaces",
            rfc3339(cluster.now)
        );
        let namespace = id(Kind::Namespace, "flux-system");
        let expected = told.then(|| Finding::new(Class::ApiUnhealthy, &namespace, text));
        let said = stale(now, &cluster.install, &observed, &cluster.history);
        assert_eq!(said, expected);
    }
}

#[test]
fn our_own_last_write_blames_nobody() {
    for (writer, known) in [("kubectl", true), (MANAGER, false)] {
        let live = Object {
            writer: writer.to_owned(),
            ..object(json!({}))
        };
        let finding = Finding::new(Class::BadImage, &source(), "").written_by(&live);
        let expected = if known {
            (writer, Some(start()))
        } else {
            ("", None)
        };
        assert_eq!((finding.writer.as_str(), finding.fault_at), expected);
    }
}

/// The engine prunes itself in the midst of a commit, and begins anew when it is back.
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each case")]
fn what_went_again_while_a_commit_is_under_way_was_pruned() {
    let service = id(Kind::Service, "source-controller");
    for (what, engine, owned, ago, under_way, before, again) in [
        (
            "again",
            EngineKind::Flux,
            true,
            Some(299),
            true,
            false,
            true,
        ),
        (
            "not Git's",
            EngineKind::Flux,
            false,
            Some(299),
            true,
            false,
            false,
        ),
        (
            "long after",
            EngineKind::Flux,
            true,
            Some(300),
            true,
            false,
            false,
        ),
        (
            "the first time",
            EngineKind::Flux,
            true,
            None,
            true,
            false,
            false,
        ),
        (
            "no commit",
            EngineKind::Flux,
            true,
            Some(1),
            false,
            false,
            false,
        ),
        (
            "Argo CD",
            EngineKind::Argocd,
            true,
            Some(1),
            true,
            false,
            false,
        ),
        (
            "it was so before",
            EngineKind::Flux,
            true,
            None,
            false,
            true,
            true,
        ),
        (
            "so before, not Git's",
            EngineKind::Flux,
            false,
            None,
            false,
            true,
            false,
        ),
    ] {
        let mut cluster = Cluster::working();
        cluster.install.wanted.get_mut(&service).unwrap().git_owned = owned;
        if engine == EngineKind::Argocd {
            cluster.install.traits = Cluster::working_of(engine).install.traits;
        }
        if under_way {
            let source = cluster.install.source.clone();
            let live = cluster.objects.get_mut(&source).unwrap();
            live.fields["status"]["artifact"]["revision"] = json!("main@sha1:2");
        }
        let past = |attempts| Past {
            attempts,
            ..Past::default()
        };
        if let Some(ago) = ago {
            let at = cluster.now - Duration::seconds(ago);
            let key = (Class::ObjectMissing, service.clone());
            cluster.history.faults.insert(key, past(vec![at]));
        }
        if before {
            let key = (Class::EngineRemovedByCommit, service.clone());
            let since = Some(cluster.now);
            let there = Past {
                since,
                ..past(vec![])
            };
            cluster.history.faults.insert(key, there);
        }
        let observed = cluster.observed();
        let said = pruned_again(
            cluster.now,
            &cluster.install,
            &observed,
            &cluster.history,
            &service,
        );
        assert_eq!(said, again, "{what}");
    }
}

/// W5: what a person deletes when its removal has long been mended, and Git may have it again, is not that commit's.
#[test]
fn what_a_commit_removed_goes_by_it_once_more_as_long_as_that_lasts_and_a_while_after() {
    let service = id(Kind::Service, "source-controller");
    for (lasts, ago, again) in [
        (true, 3_000, true),
        (false, 299, true),
        (false, 300, false),
        (false, 3_000, false),
    ] {
        let mut cluster = Cluster::working();
        cluster.install.wanted.get_mut(&service).unwrap().git_owned = true;
        let at = cluster.now - Duration::seconds(ago);
        let past = Past {
            since: lasts.then_some(at),
            attempts: vec![at],
            ..Past::default()
        };
        let key = (Class::EngineRemovedByCommit, service.clone());
        cluster.history.faults = [(key, past)].into();
        let (now, install, history) = (cluster.now, &cluster.install, &cluster.history);
        let said = pruned_again(now, install, &cluster.observed(), history, &service);
        assert_eq!(said, again, "{lasts} {ago}");
    }
}
