//! The sync objects below the root: what is wrong with them is shown, and left to the catalog. It says nothing of
//! the engine, which did what the catalog told it.

use time::OffsetDateTime;

use super::argocd;
use super::fault::Class;
use super::find::Finding;
use super::health::root_fault;
use super::state::{Child, History, Observed};
use super::{redis, undecodable};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// So many are named; the condition counts all of them.
const MAX_FOUND: usize = 8;

/// As many are mended at a time; the others follow.
const MAX_MENDED: usize = 64;

/// Those that are not Ready. One that only waits for others is named where nothing else is wrong.
pub(super) fn children(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    let all = observed.children.iter();
    let unread = all.filter_map(|(id, child)| undecodable::finding(install, observed, id, child));
    found.extend(unread.take(MAX_MENDED));
    let troubles = observed.children.iter().filter_map(|(id, child)| {
        let (reason, message) = child.trouble.as_ref()?;
        if reason == undecodable::REASON || knows_it_by_now(install, observed, message) {
            return None;
        }
        let class = match class(reason, message) {
            // The engine's own, and told of as that.
            Class::RedisDown if !redis::answers(now, observed) => return None,
            // Of another Redis, which it brought, or of what is over.
            Class::RedisDown => Class::ApplyFailed,
            // The head that the root refuses, too, and told of as that.
            Class::SignatureFailed if is_refused(install, observed) => return None,
            class => class,
        };
        let text = format!("is not Ready: {reason}: {message}");
        let mut finding = Finding::new(class, id, text);
        // Of the engine's own storage the root tells; other Secrets than the catalog's are people's.
        finding.reported = matches!(
            finding.class,
            Class::UndecodableObject | Class::ArtifactLost | Class::GitSecretBad
        );
        Some(finding)
    });
    let (waiting, broken): (Vec<Finding>, Vec<Finding>) =
        troubles.partition(|f| f.class == Class::DependencyNotReady);
    let named = if broken.is_empty() { waiting } else { broken };
    found.extend(named.into_iter().take(MAX_FOUND));
}

/// Whether the root itself refuses a commit for its signature.
fn is_refused(install: &Install, observed: &Observed) -> bool {
    let root = observed.objects.get(&install.sync);
    root.is_some_and(|root| argocd::doubts_signer(root))
}

/// What one of them says of the engine's Redis, which answers nobody who would tell.
pub(super) fn blames_redis(now: OffsetDateTime, observed: &Observed) -> Option<String> {
    if redis::answers(now, observed) {
        return None;
    }
    observed.children.iter().find_map(|(id, child)| {
        let (reason, message) = child.trouble.as_ref()?;
        let blames = class(reason, message) == Class::RedisDown;
        blames.then(|| format!("{id}: {reason}: {message}"))
    })
}

/// Whether what an Application misses is there: its controller did not know of the project yet when it looked at it, and
/// says so until it looks again, which the Git host may put off.
fn knows_it_by_now(install: &Install, observed: &Observed, message: &str) -> bool {
    argocd::missed_project(message).is_some_and(|name| {
        let project = ObjectId::new(Kind::AppProject, &install.namespace, name);
        observed.objects.contains_key(&project) || observed.children.contains_key(&project)
    })
}

/// What keeps one of them from being Ready, whether it is named or not.
pub(super) fn says(observed: &Observed, id: &ObjectId) -> Option<Class> {
    let child = observed.children.get(id)?;
    let (reason, message) = child.trouble.as_ref()?;
    (reason != undecodable::REASON).then(|| class(reason, message))
}

/// Whether more of them may be broken than are named.
pub(super) fn are_many(observed: &Observed, findings: &[Finding]) -> bool {
    let named = findings.iter().filter(|f| is_child(observed, f));
    named.count() >= MAX_FOUND
}

impl History {
    /// Notes since when each says that it is not Ready: from one reason to the next none is anew.
    pub(super) fn saw_unready(&mut self, now: OffsetDateTime, observed: &Observed) {
        let all = observed.children.iter();
        let unready = all.filter(|(_, child)| child.trouble.is_some());
        let since = |id: &ObjectId| self.unready.get(id).copied().unwrap_or(now);
        self.unready = unready.map(|(id, _)| (id.clone(), since(id))).collect();
    }
}

/// Whether a finding is about what the engine brought, and not about the engine.
pub fn is_child(observed: &Observed, finding: &Finding) -> bool {
    observed.children.contains_key(&finding.object)
}

/// Whether nothing that is wrong is the engine's: what the catalog brought may be broken, and so may be what is around.
pub fn is_well(observed: &Observed, findings: &[Finding]) -> bool {
    let others = |f: &Finding| is_child(observed, f) || f.class.is_beside();
    findings.iter().all(others)
}

/// How many there are, and how many of them are not Ready. A project is nothing that could be, and of a source only whether it can be
/// read is known.
pub fn count(observed: &Observed) -> (usize, usize) {
    let all = observed.children.iter();
    let of_itself = |id: &ObjectId, c: &Child| !id.kind.is_source() || c.trouble.is_some();
    let all = all.filter(|(id, c)| id.kind != Kind::AppProject && of_itself(id, c));
    let troubled = all.clone().filter(|(_, c)| c.trouble.is_some());
    (all.count(), troubled.count())
}

/// How many there are, for people: of more than are looked at nobody knows.
pub fn told(observed: &Observed) -> String {
    let (total, _) = count(observed);
    if observed.cut.iter().any(|kind| !kind.is_source()) {
        format!("{total} (and more, which are not looked at)")
    } else {
        total.to_string()
    }
}

fn class(reason: &str, message: &str) -> Class {
    if let Some(class) = argocd::class(reason, message) {
        return class;
    }
    match reason {
        "ArtifactFailed" if !message.contains("path") && waits(message) => {
            Class::DependencyNotReady
        }
        "TestFailed" | "HealthCheckFailed" => Class::HealthCheckFailed,
        _ => root_fault(reason, message).unwrap_or(Class::ApplyFailed),
    }
}

fn waits(message: &str) -> bool {
    message.contains("not found") || message.contains("not ready")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agent::plan::fault::Budget;
    use crate::agent::plan::project;

    fn observed(children: &[(&str, Option<(&str, &str)>)]) -> Observed {
        let children: BTreeMap<ObjectId, Child> = children
            .iter()
            .map(|(name, trouble)| {
                let trouble = trouble.map(|(r, m)| (r.to_owned(), m.to_owned()));
                let id = ObjectId::new(Kind::Kustomization, "apps", name);
                let child = Child {
                    trouble,
                    ..Child::default()
                };
                (id, child)
            })
            .collect();
        Observed {
            children: Arc::new(children),
            ..Observed::default()
        }
    }

    fn found(observed: &Observed) -> Vec<(Class, String)> {
        let mut found = Vec::new();
        let install = crate::agent::plan::tests::install();
        let now = crate::agent::plan::tests::start();
        children(now, &install, observed, &mut found);
        let named = found.into_iter().map(|f| (f.class, f.object.name));
        named.collect()
    }

    #[test]
    fn each_reason_has_its_class() {
        for (reason, message, class) in [
            ("BuildFailed", "kustomize build failed", Class::BuildFailed),
            (
                "ArtifactFailed",
                "kustomization path not found",
                Class::PathMissing,
            ),
            (
                "ArtifactFailed",
                "Source artifact not found, retrying in 30s",
                Class::DependencyNotReady,
            ),
            (
                "ArtifactFailed",
                "failed to download archive: connection refused",
                Class::ArtifactUnreachable,
            ),
            ("ReconciliationFailed", "apply failed", Class::ApplyFailed),
            (
                "HealthCheckFailed",
                "timeout waiting",
                Class::HealthCheckFailed,
            ),
            ("InstallFailed", "timed out", Class::ApplyFailed),
            ("TestFailed", "timed out", Class::HealthCheckFailed),
        ] {
            let seen = observed(&[("fine", None), ("broken", Some((reason, message)))]);
            assert_eq!(found(&seen), [(class, "broken".to_owned())], "{reason}");
        }
    }

    #[test]
    fn what_waits_for_a_broken_one_is_not_named() {
        let waits = Some(("DependencyNotReady", "dependency 'apps/a' is not ready"));
        let seen = observed(&[("a", Some(("BuildFailed", "x"))), ("b", waits)]);
        assert_eq!(found(&seen), [(Class::BuildFailed, "a".to_owned())]);
        assert_eq!((count(&seen), told(&seen).as_str()), ((2, 2), "2"));
        let alone = observed(&[("b", waits)]);
        assert_eq!(found(&alone), [(Class::DependencyNotReady, "b".to_owned())]);
    }

    /// F30: a head that the root refuses, too, is told of once.
    #[test]
    fn what_refuses_the_head_as_its_root_does_is_not_named() {
        let said = "Target revision a in Git is not signed, but a signature is required";
        let mut seen = observed(&[("web", Some(("ComparisonError", said)))]);
        let named = (Class::SignatureFailed, "web".to_owned());
        assert_eq!(found(&seen), [named]);
        let root = json!({
            "apiVersion": "v1", "kind": "x", "metadata": {"name": "root"},
            "status": {"conditions": [{"type": "ComparisonError", "message": said}]},
        });
        let root = serde_json::from_value(root).unwrap();
        let id = crate::agent::plan::tests::install().sync;
        let root = project::object(id.kind, root);
        seen.objects.insert(id, Arc::new(root));
        assert_eq!(found(&seen), []);
    }

    /// F33: a controller that started while the Git host was out of reach said so for minutes.
    #[test]
    fn words_about_a_project_that_is_there_by_now_are_no_fault() {
        let said = "Application referencing project shop which does not exist";
        let mut seen = observed(&[("web", Some(("InvalidSpecError", said)))]);
        assert_eq!(found(&seen), [(Class::BuildFailed, "web".to_owned())]);
        let namespace = crate::agent::plan::tests::install().namespace;
        let project = ObjectId::new(Kind::AppProject, &namespace, "shop");
        Arc::make_mut(&mut seen.children).insert(project, Child::default());
        assert_eq!(found(&seen), []);
        assert_eq!(count(&seen), (1, 1), "it is not Ready yet");
    }

    #[test]
    fn a_list_that_was_cut_is_told_as_one() {
        let mut seen = observed(&[("a", None)]);
        seen.cut.insert(Kind::GitRepository);
        assert_eq!(told(&seen), "1", "of a source what follows it tells");
        seen.cut.insert(Kind::Kustomization);
        assert_eq!(told(&seen), "1 (and more, which are not looked at)");
    }

    #[test]
    fn many_are_named_up_to_a_bound() {
        let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let broken = Some(("BuildFailed", "x"));
        let many: Vec<_> = names.iter().map(|n| (n.as_str(), broken)).collect();
        assert_eq!(found(&observed(&many)).len(), MAX_FOUND);
    }

    /// A second install elsewhere, a clock or an old Kubernetes may stay for good: this engine works.
    #[test]
    fn what_lies_beside_the_engine_or_below_its_root_keeps_it_from_nothing() {
        let seen = observed(&[("web", Some(("BuildFailed", "x")))]);
        let of = |class, kind, space: &str, name: &str| {
            Finding::new(class, &ObjectId::new(kind, space, name), "")
        };
        let namespace = |class| of(class, Kind::Namespace, "", "flux-system");
        let child = of(Class::BuildFailed, Kind::Kustomization, "apps", "web");
        let root = of(
            Class::BuildFailed,
            Kind::Kustomization,
            "flux-system",
            "flux-system",
        );
        for (finding, well) in [
            (child, true),
            (namespace(Class::TwoInstalls), true),
            (namespace(Class::ClockSkew), true),
            (namespace(Class::KubernetesUnsupported), true),
            (namespace(Class::ApiUnhealthy), false),
            (namespace(Class::ForeignManager), false),
            (root, false),
        ] {
            let class = finding.class;
            assert_eq!(is_well(&seen, &[finding]), well, "{class}");
        }
        assert!(is_well(&seen, &[]));
        let beside = Class::ALL.iter().filter(|class| class.is_beside());
        let acts = beside.filter(|class| class.budget() != Budget::Report);
        // What the agent mends of itself.
        assert_eq!(acts.collect::<Vec<_>>(), [&Class::AgentDrift]);
    }
}
