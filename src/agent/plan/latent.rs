//! Faults that leave the engine at work for now, or that come from around it.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::argocd;
use super::fault::Class;
use super::find::Finding;
use super::health::{pod_fault, pods_of, works};
use super::state::{Lease, Object, Observed};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId, release};
use crate::clock::parse_rfc3339;

/// Leases are renewed every 5 s and given to another after 35 s.
const STUCK: Duration = Duration::seconds(70);
const SKEW: Duration = Duration::seconds(15);
/// Half of the time between two looks of the agent at the catalog while the engine does not reach it.
const JUST: Duration = Duration::seconds(30);

pub(super) fn latent(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    for id in install.workloads() {
        if let Some(lease) = observed.leases.get(&id.name) {
            found.extend(leader(now, id, lease, observed));
        }
        found.extend(half_rolled(id, observed));
    }
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    if let Some(text) = unsupported(install, observed) {
        found.push(Finding::new(Class::KubernetesUnsupported, &namespace, text));
    }
    let mut all = observed.elsewhere.iter();
    if let Some(other) = all.find(|ns| **ns != install.namespace) {
        let text = format!("controllers of another install run in namespace {other}");
        found.push(Finding::new(Class::TwoInstalls, &namespace, text));
    }
}

/// A Kubernetes that the engine's version was not made for.
fn unsupported(install: &Install, observed: &Observed) -> Option<String> {
    let version = &install.bundle.version;
    let least = release::kubernetes(install.traits.kind, version)?;
    let minor = observed.kubernetes.filter(|minor| *minor < least)?;
    Some(format!(
        "Kubernetes is 1.{minor}; version {version} of the engine needs 1.{least} or later"
    ))
}

/// Where the agent reads the catalog and the engine beside it does not reach it, the Git host is not at fault.
pub(super) fn blocked(install: &Install, observed: &Observed, found: &mut [Finding]) {
    for finding in &mut *found {
        let parts = finding.class == Class::ArtifactUnreachable;
        if parts && argocd::awaits_git(install, observed, &finding.evidence) {
            finding.class = Class::GitUnreachable;
        }
    }
    let away = found
        .iter_mut()
        .filter(|f| f.class == Class::GitUnreachable);
    for finding in away {
        let live = observed.objects.get(&finding.object);
        let since = live.and_then(|live| complains_since(live));
        // Had the Git host been away, the agent's own look would have failed, too: the engine tries again much later.
        let read = since.zip(observed.own_read);
        // Argo CD complains anew each time it tries, as seldom as the agent looks: then a look just before will do, for
        // by the time that this is told the next one has come.
        let read = read.is_some_and(|(at, own)| own.since < at && own.last > at - JUST);
        if read && is_network(&finding.evidence) {
            finding.class = Class::PolicyBlocks;
            let text = "the agent reads the catalog, the engine beside it does not reach it";
            finding.evidence = format!("{text}: {}", finding.evidence);
        }
    }
    // What it brought fetches in the same way, and the agent does not read that itself.
    let roots: Vec<&ObjectId> = install.roots().collect();
    let blocks = |f: &Finding| f.class == Class::PolicyBlocks && roots.contains(&&f.object);
    if !found.iter().any(blocks) {
        return;
    }
    for finding in found {
        if finding.class == Class::GitUnreachable && is_network(&finding.evidence) {
            finding.class = Class::PolicyBlocks;
        }
    }
}

/// Since when a root says that something is wrong, by the newest of what it says.
fn complains_since(live: &Object) -> Option<OffsetDateTime> {
    let conditions = live.fields.pointer("/status/conditions")?.as_array()?;
    let text = |c: &Value, name: &str| c.get(name).and_then(Value::as_str).map(str::to_owned);
    let wrong = conditions.iter().filter(|c| {
        let kind = text(c, "type").unwrap_or_default();
        kind == "Ready" && text(c, "status").as_deref() == Some("False") || kind.ends_with("Error")
    });
    wrong
        .filter_map(|c| parse_rfc3339(&text(c, "lastTransitionTime")?))
        .max()
}

/// Whether nothing came back, or no connection came about: what a policy does to one.
fn is_network(message: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "i/o timeout",
        "connection timed out",
        "connection refused",
        "connection reset",
        "no route to host",
        "network is unreachable",
        "no such host",
        "server misbehaving",
        "context deadline exceeded",
    ];
    SIGNS.iter().any(|sign| message.contains(sign))
}

/// A Lease that nobody renews and nobody takes, or that comes from the future.
fn leader(
    now: OffsetDateTime,
    id: &ObjectId,
    lease: &Lease,
    observed: &Observed,
) -> Option<Finding> {
    let ahead = lease.renewed - lease.seen;
    if ahead > SKEW {
        let text = format!(
            "Pod {} renewed its Lease {} s in the future",
            lease.holder,
            ahead.whole_seconds()
        );
        return Some(Finding::new(Class::ClockSkew, id, text));
    }
    let held = observed.pods.contains_key(&lease.holder);
    let waits =
        pods_of(observed, &id.name).any(|pod| pod.created.is_some_and(|at| now - at > STUCK));
    let stuck = lease.seen - lease.renewed > STUCK && !held && waits;
    stuck.then(|| {
        let text = format!(
            "Pod {} holds the Lease and is gone; renewed last at {}",
            lease.holder,
            crate::clock::rfc3339(lease.renewed)
        );
        Finding::new(Class::LeaderStuck, id, text)
    })
}

/// The old Pod serves, the new one does not come up.
fn half_rolled(id: &ObjectId, observed: &Observed) -> Option<Finding> {
    let live = observed.objects.get(id)?;
    if !works(live) || live.number("/status/unavailableReplicas") < 1 {
        return None;
    }
    let why = pods_of(observed, &id.name).find_map(pod_fault);
    let why = why.map_or_else(|| "is not available".to_owned(), |(_, evidence)| evidence);
    let text = format!("the new Pod does not come up, an old one serves: {why}");
    Some(Finding::new(Class::HalfRolled, id, text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
    use crate::agent::plan::Pod;
    use crate::agent::plan::state::OwnRead;
    use crate::agent::plan::tests::{Cluster, install, start};
    use crate::wire::api::EngineKind;

    const APP: &str = "source-controller";

    fn pod(age: i64) -> Pod {
        Pod {
            app: APP.to_owned(),
            created: Some(start() - Duration::seconds(age)),
            ready: true,
            ..Pod::default()
        }
    }

    /// A Lease that `holder` renewed this many seconds before it was read.
    fn observed(holder: &str, renewed: i64, pods: &[(&str, Pod)]) -> Observed {
        let lease = Lease {
            uid: "lease".to_owned(),
            holder: holder.to_owned(),
            renewed: start() - Duration::seconds(renewed),
            seen: start(),
        };
        Observed {
            leases: [(APP.to_owned(), lease)].into(),
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
            let classes: Vec<Class> = found.iter().map(|f| f.class).collect();
            let expected = if told {
                vec![Class::KubernetesUnsupported]
            } else {
                Vec::new()
            };
            assert_eq!(classes, expected, "{minor:?}");
        }
    }

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
                "lastTransitionTime": crate::clock::rfc3339(since),
            }]);
        };
        let dial = "failed to list refs: dial tcp 192.0.2.1:22: i/o timeout";
        let git = "GitOperationFailed";
        let ever = Some((-minute, minute));
        for (message, read, class) in [
            (dial, None, Class::GitUnreachable),
            // Not looked since.
            (dial, Some((-minute * 2, -minute)), Class::GitUnreachable),
            // Just before the engine complained anew.
            (dial, Some((-minute * 2, -minute / 3)), Class::PolicyBlocks),
            // It was away, and the engine has not tried again.
            (dial, Some((minute, minute)), Class::GitUnreachable),
            (dial, ever, Class::PolicyBlocks),
            ("couldn't find remote ref", ever, Class::GitUnreachable),
            ("ssh: unable to authenticate", ever, Class::KeyRevoked),
        ] {
            say(&mut cluster, git, message);
            let mut observed = cluster.observed();
            observed.own_read = read.map(|(from, last)| OwnRead {
                since: since + from,
                last: since + last,
            });
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
        let gone = "Failed to load target state: rpc error: code = Unavailable desc = no children to pick from";
        let refused = "Failed to load target state: failed to list refs: dial tcp 192.0.2.1:22: connect: connection refused";
        let (read, none) = (Some(Duration::minutes(1)), None);
        for (message, own, up, class) in [
            (late, none, true, Class::GitUnreachable),
            (late, read, true, Class::PolicyBlocks),
            (refused, read, true, Class::PolicyBlocks),
            (refused, none, true, Class::GitUnreachable),
            (late, read, false, Class::ArtifactUnreachable),
            (gone, read, true, Class::ArtifactUnreachable),
        ] {
            let mut cluster = Cluster::working_of(EngineKind::Argocd);
            let said = json!([{
                "type": "ComparisonError", "message": message,
                "lastTransitionTime": crate::clock::rfc3339(cluster.now),
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
            observed.own_read = own.map(|after| OwnRead {
                since: cluster.now - after,
                last: cluster.now + after,
            });
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

    /// F33: a look takes minutes then, and a controller that was started again would not be quicker.
    #[test]
    fn a_controller_that_waits_for_git_is_not_called_wedged() {
        let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        for (message, wedged) in [(late, false), ("no such file", true)] {
            let mut cluster = Cluster::working_of(EngineKind::Argocd);
            let root = cluster.install.sync.clone();
            let asked = crate::clock::rfc3339(cluster.now);
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
                let plan =
                    crate::agent::plan::plan(now, &cluster.install, &later, &cluster.history);
                let found = plan.findings.iter().any(|f| f.class == Class::QueueWedged);
                assert_eq!(found, called, "{message} after {after} s");
            }
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

    #[test]
    fn a_new_pod_that_does_not_come_up_beside_an_old_one_is_half_rolled() {
        let cluster = Cluster::working();
        let mut observed = cluster.observed();
        let id = ObjectId::new(Kind::Deployment, "flux-system", APP);
        let mut live = observed.objects[&id].as_ref().clone();
        live.fields["status"]["unavailableReplicas"] = json!(1);
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
        assert!(found[0].evidence.contains("no such image"), "{found:?}");
    }
}
