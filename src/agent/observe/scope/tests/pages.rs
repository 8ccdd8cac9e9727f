//! Lists whose pages are more than comes within a call, or than there is memory for.

use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::agent::observe::pages::tests::{Asked, serving};

/// An API server with so many Applications, which never gets done with a page of more than `most`; each page that it was
/// asked for, by its limit.
fn slow(all: usize, most: usize, asked: Arc<Mutex<Vec<usize>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: std::collections::BTreeMap<&str, &str> = pairs.collect();
        let limit: usize = query["limit"].parse().unwrap();
        let from: usize = query
            .get("continue")
            .map_or(0, |from| from.parse().unwrap());
        asked.lock().unwrap().push(limit);
        async move {
            if limit > most {
                std::future::pending::<()>().await;
            }
            let end = all.min(from + limit);
            let item = |n| json!({"metadata": {"name": format!("app-{n}"), "namespace": "argocd", "uid": format!("u{n}"), "resourceVersion": "5"}});
            let items: Vec<serde_json::Value> = (from..end).map(item).collect();
            let next = if end < all {
                end.to_string()
            } else {
                String::new()
            };
            let list = json!({
                "kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1",
                "metadata": {"resourceVersion": "7", "continue": next}, "items": items,
            });
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string())))
        }
    });
    kube::Client::new(service, "default")
}

/// Whether a list of the Applications was whole, and how many are known by it.
async fn listed_from(client: &kube::Client) -> (bool, usize) {
    let install = install_of(EngineKind::Argocd);
    let view = View::new(&install);
    let extent = crate::manifests::scope::Extent::Cluster;
    let mut scopes = scopes_of(client, &install, extent).into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Children(Kind::Application)));
    let done = match scope.unwrap().list(&view).await {
        Listed::Whole(found, version) => {
            found.put(&view, Answer::Whole);
            version == "7"
        }
        Listed::Unserved | Listed::Failed(_) => false,
    };
    let known = view.0.borrow().children.len();
    (done, known)
}

async fn listed(most: usize) -> (bool, usize, Vec<usize>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let client = slow(47, most, asked.clone());
    let (done, known) = listed_from(&client).await;
    let asked = asked.lock().unwrap().clone();
    (done, known, asked)
}

/// A page that does not come in time is asked for in smaller ones, from where it was; no list is given up that can be had.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_much_is_asked_for_in_smaller_ones() {
    assert_eq!(listed(100).await, (true, 47, vec![100]));
    assert_eq!(listed(20).await, (true, 47, vec![100, 20, 20, 20]));
    let mut smallest = vec![100, 20];
    smallest.extend([4; 12]);
    assert_eq!(listed(4).await, (true, 47, smallest));
    assert_eq!(listed(3).await, (false, 0, vec![100, 20, 4]));
}

/// Whoever may make sync objects in a namespace of their own says how large they are: one page of them was more than the agent's memory,
/// at each start.
#[tokio::test(start_paused = true)]
async fn no_more_of_a_page_is_read_than_there_is_memory_for() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let client = serving(&[1_000_000; 40], Arc::clone(&asked));
    assert_eq!(listed_from(&client).await, (true, 40));
    let asked = asked.lock().unwrap();
    let mut limits = vec![100, 20];
    limits.extend([4; 10]);
    assert_eq!(asked.limits, limits);
    assert!(asked.is_within(), "{asked:?}");
}

/// An object that is too large is no smaller a few seconds later, and each look at it reads four pages.
#[tokio::test(start_paused = true)]
async fn what_is_too_large_alone_is_looked_at_once_a_minute() {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let client = serving(&[9 << 20], Arc::clone(&asked));
    let install = install_of(EngineKind::Argocd);
    let extent = crate::manifests::scope::Extent::Cluster;
    let mut scopes = scopes_of(&client, &install, extent).into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Children(Kind::Application)));
    let view = View::new(&install);
    let observed = scope.unwrap();
    drop(timeout(RELIST + RELIST / 2, observed.observe(&view)).await);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.limits, [100_usize, 20, 4, 1, 1].repeat(2));
}

const ROOT: &str = "flux-system";

fn app(name: &str) -> ObjectId {
    ObjectId::new(Kind::Kustomization, "apps", name)
}

/// A Kustomization that the root brought, and that prunes what it brought itself.
fn kustomization(name: &str, version: u64, tried: &str) -> serde_json::Value {
    let ready = json!({"type": "Ready", "status": "True"});
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": name, "namespace": "apps", "uid": name, "generation": 1,
            "resourceVersion": version.to_string(), "finalizers": ["finalizers.fluxcd.io"],
            "labels": {
                "kustomize.toolkit.fluxcd.io/name": ROOT,
                "kustomize.toolkit.fluxcd.io/namespace": ROOT,
            },
        },
        "spec": {"prune": true},
        "status": {
            "observedGeneration": 1, "lastAttemptedRevision": tried, "lastAppliedRevision": tried,
            "conditions": [ready],
        },
    })
}

fn dying(name: &str, version: u64) -> serde_json::Value {
    let mut live = kustomization(name, version, "1");
    live["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    live
}

/// An API server whose lists of Kustomizations have two pages, and are as of resourceVersion 10, 20 and so on.
struct Paged {
    /// Permits for second pages.
    pages: Arc<Semaphore>,
    /// One for each second page that was asked for.
    asked: Arc<Semaphore>,
    events: mpsc::Sender<(&'static str, serde_json::Value)>,
    view: View,
    observing: JoinSet<()>,
}

impl Paged {
    /// With a first list behind it.
    async fn begin() -> Self {
        let (pages, asked) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(0)));
        let (events, told) = mpsc::channel(16);
        let client = Self::client(Arc::clone(&pages), Arc::clone(&asked), told);
        let install = install_of(EngineKind::Flux);
        let view = View::new(&install);
        let mut root = kustomization(ROOT, 5, "1");
        root["metadata"]["namespace"] = json!(ROOT);
        let root = serde_json::from_value(root).unwrap();
        let root = project::object(Kind::Kustomization, root);
        view.put(&install.sync, Some(root));
        let extent = crate::manifests::scope::Extent::Cluster;
        let mut scopes = scopes_of(&client, &install, extent).into_iter();
        let scope = scopes.find(|s| matches!(s.what, What::Children(Kind::Kustomization)));
        let mut observing = JoinSet::new();
        observing.spawn(scope.unwrap().run(view.clone(), CancellationToken::new()));
        asked.acquire().await.unwrap().forget();
        let told_of = Self {
            pages,
            asked,
            events,
            view,
            observing,
        };
        told_of.until(|seen| seen.children.len() == 4).await;
        told_of
    }

    fn client(
        pages: Arc<Semaphore>,
        asked: Arc<Semaphore>,
        told: mpsc::Receiver<(&'static str, serde_json::Value)>,
    ) -> kube::Client {
        let lists = Arc::new(AtomicUsize::new(0));
        let told = Arc::new(Mutex::new(Some(told)));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let second = query.contains("continue=");
            if !second && !query.contains("watch=") {
                lists.fetch_add(1, Ordering::Relaxed);
            }
            let version = (lists.load(Ordering::Relaxed) * 10).to_string();
            let (pages, asked) = (Arc::clone(&pages), Arc::clone(&asked));
            let told = Arc::clone(&told);
            async move {
                if query.contains("watch=") {
                    let told = told.lock().unwrap().take();
                    let events = futures_util::stream::unfold(told, |told| async move {
                        let mut told = told?;
                        let (what, object) = told.recv().await?;
                        let event = json!({"type": what, "object": object});
                        let line = Bytes::from(format!("{event}\n"));
                        Some((Ok::<_, Infallible>(line), Some(told)))
                    });
                    let events = events.chain(futures_util::stream::pending());
                    return Ok::<_, Infallible>(Response::new(Body::from_stream(events)));
                }
                if second {
                    asked.add_permits(1);
                    pages.acquire().await.unwrap().forget();
                }
                let (names, next) = if second {
                    (["c", "d"], "")
                } else {
                    (["a", "b"], "2")
                };
                // What the second list has of them is of another revision.
                let tried = if version == "10" { "1" } else { "2" };
                let items = names.map(|name| kustomization(name, 9, tried));
                let list = json!({
                    "kind": "KustomizationList", "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                    "metadata": {"resourceVersion": version, "continue": next}, "items": items,
                });
                Ok(Response::new(Body::from(list.to_string())))
            }
        });
        kube::Client::new(service, "default")
    }

    async fn tell(&self, what: &'static str, live: serde_json::Value) {
        self.events.send((what, live)).await.unwrap();
    }

    /// Within less than the page's time; nobody but the watch can have told it.
    async fn until(&self, is_so: impl FnMut(&Observed) -> bool) {
        let mut seen = self.view.subscribe();
        let told = timeout(Duration::from_secs(1), seen.wait_for(is_so)).await;
        drop(told.expect("not told in time").unwrap());
    }

    /// A list is under way and waits for its second page.
    async fn lists(&self) {
        self.asked.acquire().await.unwrap().forget();
    }

    /// That list comes to its end.
    async fn done(&self) {
        self.pages.add_permits(1);
        self.until(|seen| seen.children.get(&app("d")).is_some_and(|c| c.tried == "2"))
            .await;
    }

    async fn end(mut self) {
        self.observing.abort_all();
        assert!(self.observing.join_next().await.unwrap().is_err());
    }
}

/// §9: the engine prunes within a second or two what somebody deletes in numbers, and a long list takes minutes.
#[tokio::test(start_paused = true)]
async fn a_deletion_beside_a_list_is_heard_at_once_and_not_forgotten_with_its_end() {
    let paged = Paged::begin().await;
    paged.lists().await;
    let deleted = |seen: &Observed| {
        let all = seen.deletions.keys().map(|id| id.name.clone());
        all.collect::<Vec<_>>()
    };
    paged.tell("MODIFIED", dying("a", 21)).await;
    paged.tell("DELETED", dying("b", 22)).await;
    paged.tell("MODIFIED", dying("c", 23)).await;
    paged.until(|seen| deleted(seen) == ["a", "b", "c"]).await;
    // The list is as of the moment before: it has them as if nothing was.
    paged.done().await;
    let seen = paged.view.subscribe().borrow().clone();
    assert_eq!(deleted(&seen), ["a", "b", "c"]);
    let dying = |name: &str| seen.children.get(&app(name)).map(|c| c.fate.dying);
    assert_eq!(
        ["a", "b", "c", "d"].map(dying),
        [Some(true), None, Some(true), Some(false)]
    );
    paged.end().await;
}

/// What is older than the list and what is newer, whichever of them comes first.
#[tokio::test(start_paused = true)]
async fn what_a_watch_tells_while_a_list_is_under_way_stands_where_it_is_newer() {
    let paged = Paged::begin().await;
    paged.lists().await;
    // The list knows more of this one.
    paged.tell("MODIFIED", kustomization("a", 15, "old")).await;
    paged.tell("MODIFIED", kustomization("b", 21, "3")).await;
    paged.tell("MODIFIED", kustomization("b", 22, "4")).await;
    paged.tell("ADDED", kustomization("e", 23, "3")).await;
    paged.tell("DELETED", kustomization("c", 24, "1")).await;
    paged
        .until(|seen| !seen.children.contains_key(&app("c")))
        .await;
    paged.done().await;
    let tried = |name: &str| {
        let seen = paged.view.0.borrow();
        seen.children.get(&app(name)).map(|c| c.tried.clone())
    };
    let all = || ["a", "b", "c", "d", "e"].map(tried);
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(all(), [said("2"), said("4"), None, said("2"), said("3")]);
    // And what comes after it, on top of that.
    paged.tell("ADDED", kustomization("c", 25, "5")).await;
    paged.tell("MODIFIED", kustomization("a", 26, "6")).await;
    paged
        .until(|seen| seen.children.get(&app("a")).is_some_and(|c| c.tried == "6"))
        .await;
    assert_eq!(
        all(),
        [said("6"), said("4"), said("5"), said("2"), said("3")]
    );
    paged.end().await;
}
