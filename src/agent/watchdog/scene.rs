//! Events about what is at fault, the last words of a container that ended, and what the engine made again after a collapse, read beside the mending: they wait for
//! nothing, and nothing waits for them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, LogParams};
use time::OffsetDateTime;
use tokio::task::{JoinError, JoinSet};
use tracing::debug;

use super::Watchdog;
use crate::agent::calls::AtMost as _;
use crate::agent::engine::Install;
use crate::agent::observe::{Page, Unread, View, api};
use crate::agent::plan::{Observed, remade, scene};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::wire::api::EngineKind;
use crate::wire::report::{ObjectEvent, Remade};

/// Looks at a time; a heal for which there is no place goes without its Events.
const MAX_LOOKS: usize = 4;
const LOOK: Duration = Duration::from_secs(5);
/// Events of one list at most, of those around a fault, and of those that tell what the engine made.
const EVENTS: u32 = 500;
const AROUND: usize = 500;
const OF_ROOTS: usize = 10_000;
/// Of one list of Applications at most, which may be large, and of all of them.
const APPLICATIONS: u32 = 50;
const ALL_APPLICATIONS: usize = 1000;

/// A heal's id, and what was found about it.
type Seen = (String, Found);

pub(super) enum Found {
    Around(Vec<ObjectEvent>, Vec<String>),
    Remade(Remade),
}

/// The looks under way.
pub(super) type Looks = JoinSet<Seen>;

impl Watchdog {
    /// Begins to look for the Events of heals that have opened, for the log of a container that ended, and for what the engine made
    /// after those of a collapse.
    pub(super) fn look_around(&mut self, install: &Install, view: &View, observed: &Observed) {
        for (heal, id) in self.records.unseen() {
            if !id.namespace.is_empty() && self.looks.len() < MAX_LOOKS {
                let (kube, view) = (self.context.kube.clone(), view.clone());
                let pod = scene::log::crashed(observed, &id).map(str::to_owned);
                self.looks.spawn(async move {
                    let log = log(kube.clone(), &id.namespace, pod);
                    let (events, log) = tokio::join!(events(&kube, &view, &id), log);
                    (heal, Found::Around(events, log))
                });
            }
        }
        while self.looks.len() < MAX_LOOKS
            && let Some((heal, since)) = self.records.aftermath(clock::now())
        {
            let (kube, view) = (self.context.kube.clone(), view.clone());
            let (kind, namespace) = (install.traits.kind, install.namespace.clone());
            self.looks.spawn(async move {
                let made = match kind {
                    EngineKind::Flux => by_flux(&kube, &view, &namespace, since).await,
                    EngineKind::Argocd => by_argocd(&kube, &view, &namespace, since).await,
                };
                let made = remade::told(made);
                (heal, Found::Remade(made))
            });
        }
    }

    /// Takes in what the looks have found.
    pub(super) fn take_looks(&mut self) {
        while let Some(seen) = self.looks.try_join_next() {
            self.took_look(seen);
        }
    }

    pub(super) fn took_look(&mut self, seen: Result<Seen, JoinError>) {
        match seen {
            Ok((heal, Found::Around(events, log))) => {
                self.records.witnessed(&heal, events);
                self.records.logged(&heal, log);
            }
            Ok((heal, Found::Remade(remade))) => {
                self.told_again.extend(self.records.remade(&heal, remade));
            }
            Err(error) => debug!(%error, "a look for Events ended"),
        }
    }
}

async fn events(kube: &kube::Client, view: &View, id: &ObjectId) -> Vec<ObjectEvent> {
    let (now, mut recent) = (clock::now(), Vec::new());
    let take = |event: &Event| recent.extend(scene::about(now, id, event));
    let all = of_namespace(kube, &id.namespace);
    let read = each(view, (&all, ListParams::default()), AROUND, take).await;
    if let Err(error) = read {
        debug!(%id, %error, "Events not read");
    }
    scene::newest(recent)
}

fn of_namespace(kube: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(kube.clone(), namespace, &ApiResource::erase::<Event>(&()))
}

/// Gives so many Events to `take`, in pages of no more bytes than any list here: they are as large as who writes them makes them.
async fn each(
    view: &View,
    (all, params): (&Api<DynamicObject>, ListParams),
    most: usize,
    mut take: impl FnMut(&Event),
) -> Result<(), Unread> {
    let mut pages = view.pages(all, params.limit(EVENTS), LOOK);
    let mut seen = 0;
    while seen < most {
        let before = seen;
        let one = |live: DynamicObject| {
            seen += 1;
            if let Ok(event) = live.try_parse::<Event>() {
                take(&event);
            }
        };
        let page = pages.next(one).await?;
        // Also a page of nothing counts.
        seen = seen.max(before + 1);
        if matches!(page, Page::Last(_)) {
            break;
        }
    }
    Ok(())
}

/// What the container before said last, in a Pod of the engine in which one ended.
async fn log(kube: kube::Client, namespace: &str, pod: Option<String>) -> Vec<String> {
    let Some(pod) = pod else {
        return Vec::new();
    };
    let pods: Api<Pod> = Api::namespaced(kube, namespace);
    let last = LogParams {
        previous: true,
        tail_lines: Some(scene::log::LINES),
        limit_bytes: Some(scene::log::BYTES),
        ..LogParams::default()
    };
    match pods.logs(&pod, &last).await_at_most(LOOK).await {
        Ok(text) => scene::log::told(&text),
        Err(error) => {
            debug!(pod, %error, "its log was not read");
            Vec::new()
        }
    }
}

/// What Flux made since then, as far as it can be read.
async fn by_flux(
    kube: &kube::Client,
    view: &View,
    namespace: &str,
    since: OffsetDateTime,
) -> BTreeSet<String> {
    let of = format!("involvedObject.kind={}", Kind::Kustomization);
    let mut found = BTreeSet::new();
    let take = |event: &Event| {
        found.append(&mut remade::by_flux(since, std::slice::from_ref(event)));
    };
    let all = of_namespace(kube, namespace);
    let params = ListParams::default().fields(&of);
    if let Err(error) = each(view, (&all, params), OF_ROOTS, take).await {
        debug!(%error, "what the engine made was not read");
    }
    found
}

/// What Argo CD did: in pages of no more bytes than any list here, for Applications are as large as who writes them makes them.
async fn by_argocd(
    kube: &kube::Client,
    view: &View,
    namespace: &str,
    since: OffsetDateTime,
) -> BTreeSet<String> {
    let applications = api(kube, Kind::Application, namespace);
    let params = ListParams::default().limit(APPLICATIONS);
    let mut pages = view.pages(&applications, params, LOOK);
    let (mut found, mut seen) = (BTreeSet::new(), 0);
    while seen < ALL_APPLICATIONS {
        let before = seen;
        let take = |live: DynamicObject| {
            seen += 1;
            found.append(&mut remade::by_argocd(since, &[live]));
        };
        let page = pages.next(take).await;
        // Also a page of nothing counts.
        seen = seen.max(before + 1);
        match page {
            Ok(Page::More) => {}
            Ok(Page::Last(_)) => break,
            Err(error) => {
                debug!(%error, "what the engine made was not read");
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::plan::tests::install_of;

    /// An API server with so many Applications of so many bytes, each of which tells of one object that was made, and as many Events
    /// of a controller; and how many are asked for each time.
    fn serving(count: usize, bytes: usize, limits: Arc<Mutex<Vec<usize>>>) -> kube::Client {
        let at = clock::rfc3339(OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1));
        let now = clock::rfc3339(clock::now());
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let field = |name: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let (_, value) = pairs.find(|(key, _)| *key == name)?;
                value.parse::<usize>().ok()
            };
            let (limit, from) = (field("limit").unwrap(), field("continue").unwrap_or(0));
            limits.lock().unwrap().push(limit);
            let end = count.min(from + limit);
            let is_event = request.uri().path().ends_with("/events");
            let item = |n: usize| {
                if is_event {
                    return json!({
                        "metadata": {"name": format!("e{n}"), "namespace": "flux-system", "annotations": {"pad": "x".repeat(bytes)}},
                        "involvedObject": {"kind": "Deployment", "name": "source-controller"},
                        "message": format!("m{n:02}"), "lastTimestamp": now,
                    });
                }
                let made = json!([{
                    "kind": "ConfigMap", "namespace": "shop", "name": format!("c{n:02}"), "message": "configmap/c created",
                }]);
                json!({
                    "metadata": {"name": format!("app-{n}"), "namespace": "argocd"},
                    "status": {
                        "operationState": {"startedAt": at, "syncResult": {"resources": made}},
                        "pad": "x".repeat(bytes),
                    },
                })
            };
            let items: Vec<Value> = (from..end).map(item).collect();
            let next = if end < count {
                end.to_string()
            } else {
                String::new()
            };
            let list = json!({
                "kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1",
                "metadata": {"resourceVersion": "7", "continue": next}, "items": items,
            });
            let answer = Response::new(Body::from(list.to_string().into_bytes()));
            async { Ok::<_, Infallible>(answer) }
        });
        kube::Client::new(service, "default")
    }

    /// Twelve that are more than 8 MiB together.
    #[tokio::test(start_paused = true)]
    async fn no_more_bytes_of_applications_are_read_at_once_than_of_any_list() {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let kube = serving(12, 750_000, Arc::clone(&limits));
        let view = View::new(&install_of(EngineKind::Argocd));
        let found = by_argocd(&kube, &view, "argocd", OffsetDateTime::UNIX_EPOCH).await;
        let all = (0..12).map(|n| format!("ConfigMap shop/c{n:02}"));
        assert_eq!(found, all.collect::<BTreeSet<_>>());
        assert_eq!(*limits.lock().unwrap(), [50, 10, 5]);
    }

    /// As above, of Events; what nobody asked for is not kept meanwhile.
    #[tokio::test(start_paused = true)]
    async fn no_more_bytes_of_events_are_read_at_once_than_of_any_list() {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let kube = serving(12, 750_000, Arc::clone(&limits));
        let view = View::new(&install_of(EngineKind::Flux));
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let told = events(&kube, &view, &id).await;
        let told: Vec<&str> = told.iter().map(|event| event.message.as_str()).collect();
        let first = [
            "m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09",
        ];
        assert_eq!(told, first);
        assert_eq!(*limits.lock().unwrap(), [500, 100, 20, 4, 5, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_events_are_read_than_around_a_fault() {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let kube = serving(1_200, 1, Arc::clone(&limits));
        let view = View::new(&install_of(EngineKind::Flux));
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        assert_eq!(events(&kube, &view, &id).await.len(), 10);
        assert_eq!(*limits.lock().unwrap(), [500]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_applications_are_read_than_a_thousand() {
        let limits = Arc::new(Mutex::new(Vec::new()));
        let kube = serving(1_200, 1, Arc::clone(&limits));
        let view = View::new(&install_of(EngineKind::Argocd));
        let found = by_argocd(&kube, &view, "argocd", OffsetDateTime::UNIX_EPOCH).await;
        assert_eq!(found.len(), ALL_APPLICATIONS);
        assert_eq!(*limits.lock().unwrap(), [50; 20]);
    }
}
