//! A CRD that has lost the label by which it is selected.

use http::StatusCode;
use tokio::sync::mpsc;

use super::*;
use crate::agent::observe::PART_OF;

const CRD: Kind = Kind::CustomResourceDefinition;
/// What somebody does is known by then.
const BAR: Duration = Duration::from_secs(5);

/// The first of the install's, and what it is.
fn first(install: &Install) -> (ObjectId, serde_json::Value) {
    let mut all = install.wanted.keys();
    let id = all.find(|id| id.kind == CRD).unwrap().clone();
    let body = install.body(&id).unwrap();
    (id, body)
}

fn labelled(body: &serde_json::Value, label: &str, version: u64) -> serde_json::Value {
    let mut live = body.clone();
    live["metadata"]["uid"] = json!("7f1");
    live["metadata"]["resourceVersion"] = json!(version.to_string());
    live["metadata"]["labels"] = json!({PART_OF: label});
    live
}

fn scope(client: &kube::Client, install: &Install) -> Scope {
    let extent = crate::manifests::scope::Extent::Cluster;
    let mut scopes = scopes_of(client, install, extent).into_iter();
    let scope = scopes.find(|s| matches!(s.what, What::Objects(CRD)));
    let scope = scope.unwrap();
    let part_of = format!("{PART_OF}=flux");
    assert!(matches!(&scope.selector, Selector::Label(text) if *text == part_of));
    scope
}

/// What an API server has.
struct State {
    live: Option<serde_json::Value>,
    /// As of which resourceVersion it lists.
    at: u64,
    /// Nobody finds the object by its name just now, nor that it is not there.
    fails: bool,
}

impl State {
    fn list(&self) -> String {
        let selected = |live: &&serde_json::Value| live["metadata"]["labels"][PART_OF] == "flux";
        let items: Vec<_> = self.live.iter().filter(selected).collect();
        let meta = json!({"resourceVersion": self.at.to_string()});
        json!({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}).to_string()
    }

    /// The answer to who asks for one object.
    fn named(&self, it: bool) -> Response<Body> {
        let status = |reason: &str| {
            json!({"kind": "Status", "apiVersion": "v1", "reason": reason}).to_string()
        };
        let (code, body) = match &self.live {
            _ if it && self.fails => (StatusCode::INTERNAL_SERVER_ERROR, status("InternalError")),
            Some(live) if it => (StatusCode::OK, live.to_string()),
            Some(_) | None => (StatusCode::NOT_FOUND, status("NotFound")),
        };
        let answer = Response::builder().status(code).body(Body::from(body));
        answer.unwrap()
    }
}

type Told = mpsc::Receiver<Option<serde_json::Value>>;
/// Of a watch, whether it is by the label, and from where it goes on.
type Begun = (bool, String);

#[expect(
    clippy::await_holding_invalid_type,
    reason = "one watch at a time takes what is told"
)]
fn client(
    id: ObjectId,
    state: Arc<Mutex<State>>,
    watches: mpsc::UnboundedSender<Begun>,
    told: Told,
) -> kube::Client {
    let told = Arc::new(tokio::sync::Mutex::new(told));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let state = state.lock().unwrap();
        let answer = if query.contains("watch=") {
            let mut pairs = query.split('&');
            let from = pairs.find_map(|pair| pair.strip_prefix("resourceVersion="));
            let begun = (query.contains("labelSelector="), from.unwrap().to_owned());
            watches.send(begun).unwrap();
            let events = futures_util::stream::unfold(Arc::clone(&told), |told| async move {
                let event = told.lock().await.recv().await;
                let event = event.flatten()?;
                let line = Bytes::from(format!("{event}\n"));
                Some((Ok::<_, Infallible>(line), told))
            });
            Response::new(Body::from_stream(events))
        } else if path.ends_with(id.kind.resource().2) {
            Response::new(Body::from(state.list()))
        } else {
            state.named(path.ends_with(&format!("/{}", id.name)))
        };
        async { Ok::<_, Infallible>(answer) }
    });
    kube::Client::new(service, "default")
}

/// Such an API server, and the scope that observes it.
struct Observing {
    id: ObjectId,
    body: serde_json::Value,
    state: Arc<Mutex<State>>,
    /// What watches tell; none = the present one ends.
    events: mpsc::Sender<Option<serde_json::Value>>,
    watches: mpsc::UnboundedReceiver<Begun>,
    view: View,
    scope: JoinSet<()>,
}

impl Observing {
    /// One that is at resourceVersion 10.
    fn begin(label: &str) -> Self {
        let install = install_of(EngineKind::Flux);
        let (id, body) = first(&install);
        let state = Arc::new(Mutex::new(State {
            live: Some(labelled(&body, label, 9)),
            at: 10,
            fails: false,
        }));
        let (events, told) = mpsc::channel(16);
        let (begun, watches) = mpsc::unbounded_channel();
        let client = client(id.clone(), Arc::clone(&state), begun, told);
        let view = View::new(&install);
        let observed = scope(&client, &install);
        let mut scope = JoinSet::new();
        scope.spawn(observed.run(view.clone(), CancellationToken::new()));
        Self {
            id,
            body,
            state,
            events,
            watches,
            view,
            scope,
        }
    }

    /// The API server has it as of this version, and lists at another one.
    fn set(&self, label: &str, version: u64, at: u64) {
        let mut state = self.state.lock().unwrap();
        state.live = Some(labelled(&self.body, label, version));
        state.at = at;
    }

    async fn tell(&self, what: &str, label: &str, version: u64) {
        let event = json!({"type": what, "object": labelled(&self.body, label, version)});
        self.events.send(Some(event)).await.unwrap();
    }

    /// The watch that is begun next.
    async fn watch(&mut self) -> Begun {
        let begun = timeout(BAR, self.watches.recv()).await;
        begun.expect("no other watch is begun").unwrap()
    }

    /// Its label and version, as they are known.
    fn known(&self) -> Option<(String, u64)> {
        let live = self.view.get(&self.id)?;
        Some((live.label(PART_OF)?.to_owned(), live.version))
    }

    async fn until_known(&self, known: Option<(&str, u64)>) {
        let mut seen = self.view.subscribe();
        let is_so = |seen: &Observed| {
            let live = seen.objects.get(&self.id);
            live.map(|live| (live.label(PART_OF).unwrap_or_default(), live.version)) == known
        };
        let found = timeout(BAR, seen.wait_for(is_so)).await;
        drop(found.expect("not known in time").unwrap());
    }

    fn is_buried(&self) -> bool {
        self.view.0.borrow().buried.contains_key(&self.id)
    }

    async fn end(mut self) {
        self.scope.abort_all();
        assert!(self.scope.join_next().await.unwrap().is_err());
    }
}

fn known(label: &str, version: u64) -> (String, u64) {
    (label.to_owned(), version)
}

/// F16, W22: a CRD that Git gives another label is there, and not to be made anew by force. The watch by the label, which calls it gone,
/// said nothing of it from then on.
#[tokio::test(start_paused = true)]
async fn what_lost_its_label_is_not_taken_for_gone_and_is_heard_of_as_before() {
    let mut observing = Observing::begin("flux");
    assert_eq!(observing.watch().await, (true, "10".to_owned()));
    observing.set("other", 150, 200);
    observing.tell("DELETED", "flux", 100).await;
    assert_eq!(observing.watch().await, (false, "200".to_owned()));
    assert_eq!(observing.known(), Some(known("other", 150)));
    assert!(!observing.is_buried());
    observing.tell("MODIFIED", "another", 220).await;
    observing.until_known(Some(("another", 220))).await;
    observing.tell("DELETED", "another", 230).await;
    observing.until_known(None).await;
    assert!(observing.is_buried(), "that was its end");
    observing.end().await;
}

/// The list finds it by its name; and with its label again it is selected by that, from the next watch on.
#[tokio::test(start_paused = true)]
async fn what_a_list_finds_without_its_label_is_watched_until_it_has_it_again() {
    let mut observing = Observing::begin("other");
    assert_eq!(observing.watch().await, (false, "10".to_owned()));
    assert_eq!(observing.known(), Some(known("other", 9)));
    observing.tell("MODIFIED", "flux", 20).await;
    observing.until_known(Some(("flux", 20))).await;
    observing.events.send(None).await.unwrap();
    assert_eq!(observing.watch().await, (true, "20".to_owned()));
    observing.end().await;
}

/// What is read by its name may be newer than what the watch has yet to tell of others.
#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_its_own_word_and_not_from_what_was_read_by_name() {
    let mut observing = Observing::begin("flux");
    assert_eq!(observing.watch().await, (true, "10".to_owned()));
    observing.set("flux", 150, 200);
    observing.tell("DELETED", "flux", 100).await;
    observing.until_known(Some(("flux", 150))).await;
    observing.events.send(None).await.unwrap();
    assert_eq!(observing.watch().await, (true, "100".to_owned()));
    observing.end().await;
}

/// It counted as gone until the next list, which bookmarks put off for five minutes.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_by_its_name_is_as_it_was_until_a_list_tells() {
    let mut observing = Observing::begin("flux");
    assert_eq!(observing.watch().await, (true, "10".to_owned()));
    observing.set("other", 150, 200);
    observing.state.lock().unwrap().fails = true;
    observing.tell("DELETED", "flux", 100).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(observing.known(), Some(known("flux", 9)));
    assert!(!observing.is_buried());
    observing.state.lock().unwrap().fails = false;
    assert_eq!(observing.watch().await, (false, "200".to_owned()));
    assert_eq!(observing.known(), Some(known("other", 150)));
    observing.end().await;
}

/// Nor do its bookmarks speak of what a watch by the label does not tell of.
#[tokio::test]
async fn a_bookmark_vouches_for_what_its_watch_hears() {
    let install = install_of(EngineKind::Flux);
    let scope = scope(&refusing(), &install);
    let (id, body) = first(&install);
    let old = clock::now() - time::Duration::minutes(2);
    for (label, wide, vouches) in [
        ("flux", false, true),
        ("other", false, false),
        ("other", true, true),
    ] {
        let view = View::new(&install);
        let live = serde_json::from_value(labelled(&body, label, 9)).unwrap();
        let all = vec![(id.clone(), project::object(CRD, live))];
        Found::Objects(CRD, all, BTreeSet::new()).put(&view, Answer::Whole);
        view.0.send_modify(|seen| {
            seen.scopes.get_mut(&CRD).unwrap().answered = Some(old);
        });
        let mut place = Place::new(Instant::now());
        (place.wide, place.whole_by) = (wide, spread(SELDOM));
        let due = place.relist_at;
        let mark = json!({"type": "BOOKMARK", "object": {
            "kind": CRD.as_str(), "apiVersion": CRD.api_version(), "metadata": {"resourceVersion": "20"},
        }});
        let mark = serde_json::from_value(mark).unwrap();
        scope.hear(&view, &mut place, Some(Ok(mark))).await;
        let renewed = view.0.borrow().scopes[&CRD].answered != Some(old);
        let told = (renewed, place.relist_at > due);
        assert_eq!(told, (vouches, vouches), "{label}, wide: {wide}");
        assert_eq!(place.resume.as_deref(), Some("20"));
    }
}
