//! A copy of the agent in the catalog brings back what is deleted here, for as long as the engine follows it. The hub has
//! taken it out before it let the cluster go; here is waited until the engine has heard of that.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::super::stored::within;
use super::delete;
use crate::agent::engine::{REQUESTED_AT, argocd, flux};
use crate::agent::observe;
use crate::bundle::Kind;
use crate::clock;
use crate::manifests::EngineNamespaces;
use crate::manifests::copy::{ARGOCD_SYNC, DIRECTORY, FLUX_SYNC};
use crate::wire::api::EngineKind;

/// An engine that has not taken the object away by then does not read the catalog: the object goes without it.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(2);

/// By what an engine follows a copy, and what it is asked to look at the catalog by.
struct Follower {
    copy: Api<DynamicObject>,
    name: &'static str,
    /// Where the object says which directory it follows.
    path: &'static str,
    root: Api<DynamicObject>,
    root_name: &'static str,
    ask: &'static str,
}

impl Follower {
    fn of(kube: &kube::Client, engines: &EngineNamespaces, engine: EngineKind) -> Self {
        let api = |kind| {
            let resource = observe::resource(kind);
            Api::namespaced_with(kube.clone(), engines.of(engine), &resource)
        };
        match engine {
            EngineKind::Flux => Self {
                copy: api(Kind::Kustomization),
                name: FLUX_SYNC,
                path: "/spec/path",
                root: api(Kind::GitRepository),
                root_name: flux::NAME,
                ask: REQUESTED_AT,
            },
            EngineKind::Argocd => Self {
                copy: api(Kind::Application),
                name: ARGOCD_SYNC,
                path: "/spec/source/path",
                root: api(Kind::Application),
                root_name: argocd::ROOT,
                ask: argocd::REFRESH,
            },
        }
    }

    /// Whether the object is there and follows a copy. What cannot be read, as without the engine's kinds, follows none.
    async fn is_there(&self) -> bool {
        let found = within(self.copy.get_opt(self.name)).await;
        found.is_ok_and(|object| object.is_some_and(|object| follows(&object.data, self.path)))
    }

    async fn ask(&self, word: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {(self.ask): word}}}));
        let params = PatchParams::default();
        let asked = within(self.root.patch(self.root_name, &params, &patch));
        if let Err(error) = asked.await {
            warn!(
                error = format!("{error:#}"),
                "the engine is not asked to look"
            );
        }
    }
}

/// Returns when no engine follows a copy any more, at `stop`, or after [`LIMIT`].
pub(super) async fn end(kube: &kube::Client, engines: &EngineNamespaces, stop: &CancellationToken) {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let follower = Follower::of(kube, engines, engine);
        let until = Instant::now() + LIMIT;
        while follower.is_there().await {
            if Instant::now() >= until {
                warn!(%engine, "the engine still follows the copy of the agent: ending that here");
                delete(&follower.copy, follower.name).await;
                break;
            }
            info!(%engine, "waiting until the engine follows no copy of the agent");
            let word = match engine {
                EngineKind::Flux => clock::rfc3339(clock::now()),
                EngineKind::Argocd => "normal".to_owned(),
            };
            follower.ask(&word).await;
            if stop.run_until_cancelled(sleep(LOOK)).await.is_none() {
                return;
            }
        }
    }
}

/// Somebody else's object may have the name.
fn follows(object: &Value, path: &str) -> bool {
    let path = object.pointer(path).and_then(Value::as_str);
    let path = path.unwrap_or_default().trim_start_matches("./");
    path.strip_prefix(DIRECTORY)
        .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_that_name_that_follows_something_else_is_left_alone() {
        for (path, is) in [
            ("./linesman/eu1", true),
            ("linesman/eu1", true),
            ("./apps/linesman", false),
            ("./linesman-apps/eu1", false),
            ("", false),
        ] {
            let object = json!({"spec": {"path": path}});
            assert_eq!(follows(&object, "/spec/path"), is, "{path}");
        }
        assert!(!follows(&json!({}), "/spec/source/path"));
    }
}
