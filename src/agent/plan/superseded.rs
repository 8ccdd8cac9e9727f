//! Pods of a StatefulSet's former version. It waits for its Pod to become ready before it makes one of a newer version: one
//! that never does so is waited for without an end. Those that are ready serve, each for its own share of the clusters, until
//! their turn comes.

use super::fault::Class;
use super::find::Finding;
use super::state::{Object, Observed, Pod};
use crate::bundle::{Kind, ObjectId};

/// So many are named.
const NAMED: usize = 3;

/// The Pods of a former version that do not become ready, by name.
pub fn of<'a>(
    observed: &'a Observed,
    (id, live): (&'a ObjectId, &'a Object),
) -> impl Iterator<Item = (&'a str, &'a Pod)> {
    let update = live.text("/status/updateRevision");
    let known = live.number("/status/observedGeneration") >= live.generation;
    let waits = id.kind == Kind::StatefulSet && !update.is_empty() && known;
    let all = observed.pods.iter().filter(move |_| waits);
    let all = all.map(|(name, pod)| (name.as_str(), pod.as_ref()));
    all.filter(move |(_, pod)| {
        let there = pod.app == id.name && !pod.deleting && pod.failed.is_none();
        there && !pod.ready && !pod.revision.is_empty() && pod.revision != update
    })
}

/// One finding a StatefulSet, which names them.
pub(super) fn found(observed: &Observed, (id, live): (&ObjectId, &Object)) -> Option<Finding> {
    let waits = |(name, pod): (&str, &Pod)| {
        let why = pod.waiting.as_ref();
        let why = why.map_or("is not ready", |(reason, _)| reason);
        format!("{name}: {why}")
    };
    let named: Vec<String> = of(observed, (id, live)).take(NAMED).map(waits).collect();
    let text = format!(
        "its Pod of a former version is waited for: {}",
        named.join(", ")
    );
    (!named.is_empty()).then(|| Finding::new(Class::PodSuperseded, id, text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agent::plan::tests::Cluster;
    use crate::wire::api::EngineKind;

    /// Of several shards only one waits for its version: the others serve their clusters, and are left alone.
    #[test]
    fn only_pods_of_a_former_version_that_are_not_ready_are_superseded() {
        let id = ObjectId::new(Kind::StatefulSet, "argocd", "argocd-application-controller");
        let cluster = Cluster::working_of(EngineKind::Argocd);
        let live = |update: &str, seen: i64| {
            let mut live = cluster.objects[&id].clone();
            live.generation = 2;
            live.fields["status"] = json!({"updateRevision": update, "observedGeneration": seen});
            live
        };
        let mut observed = Observed::default();
        for (name, app, revision, ready, deleting) in [
            ("shard-0", id.name.as_str(), "bad", true, false),
            ("shard-1", id.name.as_str(), "bad", false, false),
            ("shard-2", id.name.as_str(), "good", false, false),
            ("shard-3", id.name.as_str(), "bad", false, true),
            ("shard-4", id.name.as_str(), "", false, false),
            ("redis", "argocd-redis", "bad", false, false),
        ] {
            let pod = Pod {
                app: app.to_owned(),
                revision: revision.to_owned(),
                ready,
                deleting,
                ..Pod::default()
            };
            observed.pods.insert(name.to_owned(), Arc::new(pod));
        }
        let deployment = ObjectId::new(Kind::Deployment, "argocd", &id.name);
        for (of_kind, update, seen, expected) in [
            (&id, "good", 2, &["shard-1"][..]),
            (&id, "bad", 2, &["shard-2"]),
            (&id, "good", 1, &[]),
            (&id, "", 2, &[]),
            (&deployment, "good", 2, &[]),
        ] {
            let live = live(update, seen);
            let names: Vec<&str> = of(&observed, (of_kind, &live)).map(|(n, _)| n).collect();
            assert_eq!(names, expected, "{of_kind} {update} {seen}");
            let said = found(&observed, (of_kind, &live)).map(|f| f.evidence);
            let said = said.unwrap_or_default();
            assert!(expected.iter().all(|name| said.contains(name)), "{said}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
        }
    }
}
