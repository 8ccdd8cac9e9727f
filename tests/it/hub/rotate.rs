//! Keys that are replaced while everything else goes on: agent's and hub's real parts, the built-in Git server, and a
//! Kubernetes API that knows Secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linesman::agent::caller::{Call, Caller};
use linesman::agent::enroll::gitpath::GitPath;
use linesman::agent::enroll::keyring::Keyring;
use linesman::agent::enroll::rotate::Rotating;
use linesman::agent::enroll::{Context, stored};
use linesman::agent::fault::{Boundary, Faults};
use linesman::agent::gitline::Carried;
use linesman::agent::health::Hearts;
use linesman::agent::identity::{self, Identity};
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::agent::{Joined, News};
use linesman::clock;
use linesman::keys::KeyPair;
use linesman::wire::api::{AgentBuild, Assignment, EngineKind};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::slug;
use super::support::{Agent, TestHub};

const PATIENCE: Duration = Duration::from_secs(30);

/// The Secrets of one namespace, as an API server keeps them.
#[derive(Clone, Default)]
struct Secrets(Arc<Mutex<BTreeMap<String, Value>>>);

impl Secrets {
    fn client(&self) -> kube::Client {
        let secrets = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let secrets = secrets.clone();
            async move { Ok::<_, std::convert::Infallible>(secrets.serve(request).await) }
        });
        kube::Client::new(service, "linesman")
    }

    async fn serve(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> http::Response<kube::client::Body> {
        let (parts, body) = request.into_parts();
        let bytes = http_body_util::BodyExt::collect(body)
            .await
            .unwrap()
            .to_bytes();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        let mut all = self.0.lock().unwrap();
        let (code, answer) = match parts.method.as_str() {
            "PATCH" => {
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                all.insert(name, sent.clone());
                (200, sent)
            }
            "GET" if name == "kube-system" => (
                200,
                json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "uid": "uid-of-eu1"}}),
            ),
            "POST" if parts.uri.path().ends_with("/secrets") => {
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                let name = sent["metadata"]["name"].as_str().unwrap().to_owned();
                all.insert(name, sent.clone());
                (201, sent)
            }
            "GET" => match all.get(&name) {
                Some(found) => (200, found.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "code": 404, "status": "Failure", "reason": "NotFound", "message": "none"}),
                ),
            },
            // Events.
            _ => (201, serde_json::from_slice(&bytes).unwrap()),
        };
        let answer = serde_json::to_vec(&answer).unwrap();
        http::Response::builder()
            .status(code)
            .body(kube::client::Body::from(answer))
            .unwrap()
    }

    async fn keys(&self) -> Identity {
        stored::keys(&self.client(), "linesman", &cluster(), None)
            .await
            .unwrap()
    }

    /// As the next process of a cluster that has joined finds them, whose engine has `copy`.
    async fn rescued(&self, copy: Option<KeyPair>) -> Identity {
        if let Some(copy) = copy {
            let file = identity::private_file(&copy, &cluster()).unwrap();
            let secret = json!({
                "metadata": {"name": "flux-system"},
                "data": {"identity": STANDARD.encode(file.expose())},
            });
            let mut all = self.0.lock().unwrap();
            all.insert("flux-system".to_owned(), secret);
        }
        let joined = Some(EngineKind::Flux);
        stored::keys(&self.client(), "linesman", &cluster(), joined)
            .await
            .unwrap()
    }

    /// Somebody deletes them.
    fn delete(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// An agent's part that replaces keys, with what feeds it; dropped, it ends as by SIGKILL.
struct Running {
    identity: watch::Receiver<Identity>,
    denied: watch::Sender<u32>,
    /// Calls to the hub that failed.
    failed: Arc<Mutex<Vec<String>>>,
    line: watch::Receiver<LinkState>,
    _tasks: JoinSet<()>,
}

/// How the engine in the cluster fares meanwhile.
#[derive(Debug, Default)]
struct Fetches {
    good: u32,
    failed: Vec<String>,
    /// The fingerprint of the key in its Secret.
    key: String,
}

struct World {
    hub: TestHub,
    secrets: Secrets,
    assignment: Assignment,
    /// What the engine's Secret holds.
    given: watch::Sender<KeyPair>,
    /// The key of the last good fetch.
    fetched: watch::Sender<String>,
    log: Arc<Mutex<Fetches>>,
    _engine: JoinSet<()>,
}

impl World {
    async fn new(name: &str) -> Self {
        let hub = TestHub::start(name).await;
        let token = hub.add("eu1").await;
        let (_, joined) = Agent::new(1).join(&hub, "eu1", &token).await;
        let assignment: Assignment = serde_json::from_value(joined).unwrap();
        let secrets = Secrets::default();
        let keys = Identity::from_seeds(&[1; 32], &[101; 32]);
        Keyring::new(
            stored::secrets(&secrets.client(), "linesman"),
            &cluster(),
            keys.clone(),
        )
        .unwrap()
        .replace(keys.clone())
        .await
        .unwrap();
        let given = watch::Sender::new(keys.deploy);
        let fetched = watch::Sender::new(String::new());
        let log = Arc::<Mutex<Fetches>>::default();
        let mut engine = JoinSet::new();
        let (key, told, count) = (given.subscribe(), fetched.clone(), log.clone());
        engine.spawn(fetch(assignment.clone(), key, told, count));
        Self {
            hub,
            secrets,
            assignment,
            given,
            fetched,
            log,
            _engine: engine,
        }
    }

    /// A process of the agent, which finds what the one before stored.
    async fn agent(&self, faults: Faults) -> Running {
        let keyring = Keyring::new(
            stored::secrets(&self.secrets.client(), "linesman"),
            &cluster(),
            self.secrets.keys().await,
        )
        .unwrap();
        let identity = keyring.current();
        let joined = watch::Sender::new(Some(Joined {
            assignment: self.assignment.clone(),
            proxy: None,
        }));
        let (dialled, link) = watch::channel(LinkState::Down {
            since: clock::now(),
            cause: "not dialled".to_owned(),
            attempt: 0,
        });
        let dial = LinkConfig {
            hub: watch::channel(self.assignment.hub.clone()).1,
            cluster: cluster(),
            keys: identity.clone(),
            build: AgentBuild::default(),
            instance: uuid::Uuid::now_v7().to_string(),
            proxy: None,
        };
        let (news, mut told) = mpsc::channel::<News>(64);
        let caller = Caller::new(identity.clone(), joined.subscribe(), link.clone());
        let denied = watch::Sender::new(0);
        let rotating = Rotating {
            context: Context {
                kube: self.secrets.client(),
                namespace: "linesman".to_owned(),
                pod: "agent".to_owned(),
                cluster: cluster(),
                build: AgentBuild::default(),
                faults,
                news,
            },
            keyring,
            caller: caller.clone(),
            path: GitPath {
                link: link.clone(),
                carried: watch::Sender::new(Carried::default()),
            },
            heart: Hearts::default().heart("rotate", Duration::from_mins(1)),
            joined: joined.subscribe(),
            fetched: self.fetched.subscribe(),
            denied: denied.subscribe(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (streams, _incoming) = mpsc::channel(8);
            link::run(dial, dialled, streams, CancellationToken::new())
                .await
                .unwrap();
        });
        let failed = Arc::<Mutex<Vec<String>>>::default();
        let failures = failed.clone();
        tasks.spawn(async move { rotating.run(CancellationToken::new()).await.unwrap() });
        tasks.spawn(async move { while told.recv().await.is_some() {} });
        let (keys, given) = (identity.clone(), self.given.clone());
        tasks.spawn(follow(caller, joined, keys, given, failures));
        Running {
            identity,
            denied,
            failed,
            line: link,
            _tasks: tasks,
        }
    }

    async fn ask(&self) -> Value {
        let asked = json!({"deployKey": true});
        let (code, wish) = self.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        wish
    }

    /// Kind, state and fingerprint of the cluster's keys that are in force.
    async fn in_force(&self, kind: &str) -> Vec<String> {
        let (_, view) = self.hub.get("/v1/clusters/eu1").await;
        let keys = view["keys"].as_array().unwrap().clone();
        let of_kind = keys
            .into_iter()
            .filter(|k| k["kind"] == json!(kind) && k["state"] != json!("revoked"));
        of_kind
            .map(|k| k["fingerprint"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Until hub, Secret and line have one and the same identity, which is not `old`.
    async fn identified(&self, agent: &Running, old: &KeyPair) -> KeyPair {
        let began = Instant::now();
        loop {
            let keys = agent.identity.borrow().clone();
            let own = keys.identity.public();
            let at_hub = self.in_force("identity").await;
            let up = matches!(*agent.line.borrow(), LinkState::Up { .. });
            let done = keys.next_identity.is_none() && own != old.public() && up;
            if done && at_hub == [own.fingerprint()] {
                return keys.identity;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "own {}, at the hub {at_hub:?}, line {:?}",
                own.fingerprint(),
                agent.line.borrow()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until hub, Secret and engine have one and the same key, which is not `old`.
    async fn settled(&self, agent: &Running, old: &str) -> String {
        let began = Instant::now();
        loop {
            let keys = agent.identity.borrow().clone();
            let own = keys.deploy.public().fingerprint();
            let at_hub = self.in_force("deploy").await;
            let engine = self.log.lock().unwrap().key.clone();
            let done = keys.next_deploy.is_none() && !keys.unsettled && own != old;
            if done && at_hub == [own.clone()] && engine == own {
                let stored = self.secrets.keys().await.deploy.public().fingerprint();
                assert_eq!(stored, own);
                return own;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "own {own}, at the hub {at_hub:?}, the engine has {engine}, {keys:?}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn cluster() -> linesman::wire::id::ClusterName {
    "eu1".parse().unwrap()
}

/// The assignment is followed, and the engine's Secret after the keys.
async fn follow(
    caller: Caller,
    joined: watch::Sender<Option<Joined>>,
    mut keys: watch::Receiver<Identity>,
    given: watch::Sender<KeyPair>,
    failed: Arc<Mutex<Vec<String>>>,
) {
    loop {
        sleep(Duration::from_millis(50)).await;
        let call = |base: String| Ok(Call::get(format!("{base}/assignment")));
        let answer = caller.cluster(call).await;
        let now = answer.and_then(|a| a.json::<Assignment>());
        if let Err(error) = &now {
            failed.lock().unwrap().push(format!("{error:#}"));
        }
        if let Ok(now) = now {
            joined.send_if_modified(|joined| {
                let joined = joined.as_mut().unwrap();
                let changed = joined.assignment != now;
                joined.assignment = now;
                changed
            });
        }
        let deploy = keys.borrow_and_update().deploy.clone();
        given.send_replace(deploy);
    }
}

/// The engine: fetches without end with what its Secret holds, and tells of each good fetch.
async fn fetch(
    assignment: Assignment,
    mut given: watch::Receiver<KeyPair>,
    told: watch::Sender<String>,
    fetches: Arc<Mutex<Fetches>>,
) {
    let (_, link) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: "none here".to_owned(),
        attempt: 0,
    });
    let path = GitPath {
        link,
        carried: watch::Sender::new(Carried::default()),
    };
    let url = assignment.catalog.url.parse().unwrap();
    loop {
        let key = given.borrow_and_update().clone();
        let private = identity::private_file(&key, &cluster()).unwrap();
        let read = path.walk(&url, &assignment.catalog, &private).await;
        let print = key.public().fingerprint();
        {
            let mut fetches = fetches.lock().unwrap();
            fetches.key.clone_from(&print);
            match read {
                Ok(_) => {
                    fetches.good += 1;
                    told.send_replace(print);
                }
                Err(error) => fetches.failed.push(format!("{print}: {error}")),
            }
        }
        sleep(Duration::from_millis(25)).await;
    }
}

/// W42, and W3 for a rotation: whichever boundary the agent is killed at, the next process ends it with one key, and
/// no fetch failed meanwhile.
#[tokio::test]
async fn a_deploy_key_is_replaced_over_a_kill_at_any_boundary_without_a_failed_fetch() {
    let world = World::new("rotate-kills").await;
    let mut old = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    for boundary in Boundary::DEPLOY {
        assert_eq!(world.ask().await["deployKey"], json!(old));
        let (faults, reached) = Faults::halting(boundary);
        let killed = world.agent(faults).await;
        let reached = timeout(PATIENCE, reached.notified()).await;
        assert!(reached.is_ok(), "{boundary:?} was not reached");
        drop(killed);
        let agent = world.agent(Faults::default()).await;
        old = world.settled(&agent, &old).await;
    }
    {
        let log = world.log.lock().unwrap();
        assert!(log.good > 20, "{log:?}");
        assert_eq!(log.failed, Vec::<String>::new());
    }
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 500)
        .await
        .unwrap();
    for (action, least) in [
        ("cluster.rotate", 7),
        ("cluster.deploy-key.add", 7),
        ("cluster.deploy-key.drop", 7),
    ] {
        let found = rows.iter().filter(|r| r.action == action).count();
        assert!(found >= least, "{found} × {action}");
    }
    world.hub.stop().await;
}

/// H16: whichever boundary the agent is killed at, the next process ends the rotation with one identity; the line moves
/// to it, and no call of a living agent fails.
#[tokio::test]
async fn an_identity_is_replaced_over_a_kill_at_any_boundary_without_a_failed_call() {
    let world = World::new("rotate-identity").await;
    let mut old = KeyPair::from_seed(&[1; 32]);
    for boundary in Boundary::IDENTITY {
        let asked = json!({"identity": true});
        let (code, wish) = world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        let (faults, reached) = Faults::halting(boundary);
        let killed = world.agent(faults).await;
        let reached = timeout(PATIENCE, reached.notified()).await;
        assert!(reached.is_ok(), "{boundary:?} was not reached");
        assert_eq!(*killed.failed.lock().unwrap(), Vec::<String>::new());
        drop(killed);
        let agent = world.agent(Faults::default()).await;
        let new = world.identified(&agent, &old).await;
        assert_eq!(*agent.failed.lock().unwrap(), Vec::<String>::new());
        let path = "/v1/clusters/eu1/assignment";
        let call = world.hub.call("GET", path, "");
        let (code, problem) = call.signed_by(&old, 0).await;
        assert_eq!((code, slug(&problem)), (403, "revoked"), "{boundary:?}");
        old = new;
    }
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 500)
        .await
        .unwrap();
    for action in ["cluster.identity.add", "cluster.identity.drop"] {
        let found = rows.iter().filter(|r| r.action == action).count();
        assert_eq!(found, 3, "{action}");
    }
    world.hub.stop().await;
}

/// The line of a living agent moves before the old one ends.
#[tokio::test]
async fn a_line_moves_to_the_new_identity_without_a_gap() {
    let world = World::new("rotate-line").await;
    let agent = world.agent(Faults::default()).await;
    let mut line = agent.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(PATIENCE, up).await.unwrap().unwrap();
    let gaps = Arc::new(Mutex::new(0_u32));
    let (seen, mut watched) = (gaps.clone(), agent.line.clone());
    let watching = async move {
        loop {
            if matches!(*watched.borrow_and_update(), LinkState::Down { .. }) {
                *seen.lock().unwrap() += 1;
            }
            watched.changed().await.unwrap();
        }
    };
    let rotated = async {
        let asked = json!({"identity": true, "deployKey": true});
        let (code, wish) = world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        world
            .identified(&agent, &KeyPair::from_seed(&[1; 32]))
            .await;
        let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
        world.settled(&agent, &deploy).await;
    };
    tokio::select! {
        () = watching => unreachable!(),
        () = rotated => {}
    }
    assert_eq!(*gaps.lock().unwrap(), 0);
    assert_eq!(*agent.failed.lock().unwrap(), Vec::<String>::new());
    world.hub.stop().await;
}

/// A line of the old key that comes up while the change is under way ends nothing.
#[tokio::test]
async fn a_key_that_was_replaced_ends_no_other() {
    let world = World::new("rotate-race").await;
    let store = &world.hub.hub.store;
    let cluster = store.cluster(&cluster()).await.unwrap().unwrap();
    let old = KeyPair::from_seed(&[1; 32]).public().fingerprint();
    let read_before = store.cluster_key_by_fingerprint(&old).await.unwrap();
    let new = KeyPair::from_seed(&[50; 32]).public();
    let added = store.add_identity(&cluster.id, new, clock::now()).await;
    assert!(added.unwrap().is_some());
    let ended = store.settle_key(&read_before.unwrap(), clock::now()).await;
    assert_eq!(ended.unwrap(), []);
    assert_eq!(world.in_force("identity").await.len(), 2);
    world.hub.stop().await;
}

/// The answer to the change was lost, and the agent away until the hub had ended the old key: the new one goes on.
#[tokio::test]
async fn an_agent_that_comes_back_after_its_old_identity_ended_goes_on_with_the_next() {
    let world = World::new("rotate-late").await;
    let asked = json!({"identity": true});
    world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
    let (faults, reached) = Faults::halting(Boundary::IdentityRegistered);
    let killed = world.agent(faults).await;
    timeout(PATIENCE, reached.notified()).await.unwrap();
    drop(killed);
    let later = clock::now() + time::Duration::minutes(11);
    let store = &world.hub.hub.store;
    let limit = later - time::Duration::minutes(10);
    let ended = store.end_retired(limit, later).await.unwrap();
    assert_eq!(ended.len(), 1);
    let agent = world.agent(Faults::default()).await;
    world
        .identified(&agent, &KeyPair::from_seed(&[1; 32]))
        .await;
    world.hub.stop().await;
}

#[tokio::test]
async fn an_identity_changes_only_by_the_word_of_both_keys() {
    let world = World::new("rotate-forged").await;
    let agent = Agent::new(1);
    let [old, new, other] = [1, 50, 51].map(|seed| KeyPair::from_seed(&[seed; 32]));
    let change = async |old: &KeyPair, new: &KeyPair, hub: &str, name: &str| {
        let body = identity::identity_change(old, new, hub, &name.parse().unwrap());
        let body = serde_json::to_string(&body).unwrap();
        let path = "/v1/clusters/eu1/identity";
        agent.call(&world.hub, "POST", path, &body).await
    };
    let id = world.hub.hub.id.clone();
    for (by, hub, name) in [
        (&other, id.as_str(), "eu1"),
        (&old, "another-hub", "eu1"),
        (&old, id.as_str(), "eu2"),
        (&new, id.as_str(), "eu1"),
    ] {
        let (code, problem) = change(by, &new, hub, name).await;
        assert_eq!(
            (code, slug(&problem)),
            (403, "bad-signature"),
            "{hub} {name}"
        );
    }
    // H21: a key that another cluster has is not taken.
    let token = world.hub.add("eu2").await;
    let foreign = Agent::new(2);
    foreign.join(&world.hub, "eu2", &token).await;
    let (code, problem) = change(&old, &foreign.identity, &id, "eu1").await;
    assert_eq!((code, slug(&problem)), (409, "key-known"));
    for _ in 0..2 {
        assert_eq!(change(&old, &new, &id, "eu1").await.0, 204);
    }
    assert_eq!(world.in_force("identity").await.len(), 2);
    world.hub.stop().await;
}

/// H14: the key Secret deleted while the agent was away: the deploy key in the engine's Secret names a new identity.
#[tokio::test]
async fn a_lost_identity_is_recovered_by_the_deploy_key_of_the_engine() {
    let world = World::new("recover").await;
    let old = KeyPair::from_seed(&[1; 32]);
    let deploy = KeyPair::from_seed(&[101; 32]);
    let first = world.agent(Faults::default()).await;
    let mut line = first.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(PATIENCE, up).await.unwrap().unwrap();
    // As long as the former agent is there, nobody else is taken for it.
    let thief = Identity::from_seeds(&[70; 32], &[101; 32]);
    let (code, problem) = recover(&world, &thief, "uid-of-eu1").await;
    assert_eq!((code, slug(&problem)), (409, "line-live"));
    drop(first);
    world.secrets.delete();
    let keys = world.secrets.rescued(Some(deploy.clone())).await;
    assert!(keys.lost && keys.identity.public() != old.public());
    let second = world.agent(Faults::default()).await;
    let new = world.identified(&second, &old).await;
    assert_eq!(new.public(), keys.identity.public());
    assert!(!second.identity.borrow().lost);
    assert_eq!(
        world.in_force("deploy").await,
        [deploy.public().fingerprint()]
    );
    let path = "/v1/clusters/eu1/assignment";
    let (code, problem) = world.hub.call("GET", path, "").signed_by(&old, 0).await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 100)
        .await
        .unwrap();
    for action in ["cluster.recover", "cluster.identity.drop"] {
        let found = rows
            .iter()
            .filter(|r| r.action == action && r.verdict == "allow");
        assert_eq!(found.count(), 1, "{action}");
    }
    world.hub.stop().await;
}

/// H15: with both keys lost the hub shows it, with the next step, to those that ask it; no stranger can make it do so.
#[tokio::test]
async fn a_cluster_that_lost_both_keys_is_shown_and_not_recovered() {
    let world = World::new("recover-none").await;
    world.secrets.delete();
    let keys = world.secrets.rescued(None).await;
    let conflict = async || {
        let (_, view) = world.hub.get("/v1/clusters/eu1").await;
        let all = view["conditions"].as_array().unwrap().clone();
        all.into_iter().find(|c| c["type"] == json!("JoinConflict"))
    };
    let (code, problem) = recover(&world, &keys, "guessed").await;
    assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
    assert_eq!(conflict().await, None);
    let (code, problem) = recover(&world, &keys, "uid-of-eu1").await;
    assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
    let shown = conflict().await.unwrap();
    assert_eq!(shown["reason"], json!("KeysLost"));
    let text = shown["message"].as_str().unwrap();
    assert!(text.contains("linesman cluster readopt eu1"), "{text}");
    let own = world.in_force("identity").await;
    assert_eq!(own, [KeyPair::from_seed(&[1; 32]).public().fingerprint()]);
    world.hub.stop().await;
}

/// `POST /v1/recover` as a cluster of this incarnation with these keys.
async fn recover(world: &World, keys: &Identity, incarnation: &str) -> (u16, Value) {
    let body = json!({
        "cluster": "eu1",
        "incarnation": incarnation,
        "newIdentityKey": keys.identity.public().to_base64(),
        "deployKey": keys.deploy.public().openssh("").unwrap(),
        "sig": identity::recovery_proof(keys, &world.hub.hub.id, &cluster(), incarnation),
    });
    let body = body.to_string();
    let call = world.hub.call("POST", "/v1/recover", &body);
    call.signed_by(&keys.identity, 0).await
}

/// H27: a key that the Git host does not take any more is replaced by itself.
#[tokio::test]
async fn a_key_that_was_revoked_at_the_host_is_replaced_without_being_asked() {
    let world = World::new("rotate-revoked").await;
    let store = &world.hub.hub.store;
    let old = KeyPair::from_seed(&[101; 32]).public();
    let cluster = store.cluster(&cluster()).await.unwrap().unwrap();
    let other = KeyPair::from_seed(&[9; 32]).public();
    let other = store
        .add_deploy_key(&cluster.id, other, None, clock::now())
        .await
        .unwrap()
        .unwrap();
    let ended = store.settle_key(&other, clock::now()).await.unwrap();
    assert_eq!(ended.len(), 1);
    let agent = world.agent(Faults::default()).await;
    agent.denied.send_replace(2);
    world.settled(&agent, &old.fingerprint()).await;
    world.hub.stop().await;
}

#[tokio::test]
async fn a_rotation_names_a_key_and_a_cluster_that_has_one() {
    let hub = TestHub::start("rotate-asked").await;
    let token = hub.add("eu1").await;
    let path = "/v1/clusters/eu1/rotate";
    let (code, problem) = hub.post(path, &json!({})).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let both = json!({"deployKey": true, "identity": true});
    let (code, problem) = hub.post(path, &both).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (code, wish) = hub.post(path, &both).await;
    assert_eq!(code, 200, "{wish}");
    assert_eq!(
        wish["identity"],
        json!(agent.identity.public().fingerprint())
    );
    let (_, assignment) = agent
        .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
        .await;
    assert_eq!(assignment["rotate"], wish);
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let (code, _) = hub.call_as(&viewer, ("POST", path), &[], &both).await;
    assert_eq!(code, 403);
    hub.stop().await;
}

/// A cluster that registers one key after the other is stopped before it fills the hub.
#[tokio::test]
async fn a_cluster_has_a_bounded_number_of_keys() {
    let world = World::new("rotate-bound").await;
    let agent = Identity::from_seeds(&[1; 32], &[101; 32]);
    let signer = Agent::new(1);
    let register = async |seed: u8, in_use: bool| {
        let key = KeyPair::from_seed(&[seed; 32]);
        let body = json!({
            "publicKey": key.public().openssh("").unwrap(),
            "proof": agent.deploy_proof(&key, &world.hub.hub.id, &cluster()),
            "inUse": in_use,
        });
        let path = "/v1/clusters/eu1/deploy-keys";
        signer
            .call(&world.hub, "POST", path, &body.to_string())
            .await
    };
    for seed in 10..17 {
        assert_eq!(register(seed, false).await.0, 200, "{seed}");
    }
    let (code, problem) = register(17, false).await;
    assert_eq!((code, slug(&problem)), (409, "full"));
    // The one that is in use ends all others; a proof by another key counts for nothing.
    assert_eq!(register(16, true).await.0, 200);
    assert_eq!(world.in_force("deploy").await.len(), 1);
    let foreign = json!({
        "publicKey": KeyPair::from_seed(&[30; 32]).public().openssh("").unwrap(),
        "proof": agent.deploy_proof(&KeyPair::from_seed(&[31; 32]), &world.hub.hub.id, &cluster()),
    });
    let path = "/v1/clusters/eu1/deploy-keys";
    let (code, problem) = signer
        .call(&world.hub, "POST", path, &foreign.to_string())
        .await;
    assert_eq!((code, slug(&problem)), (403, "bad-signature"));
    world.hub.stop().await;
}
