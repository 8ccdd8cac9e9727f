//! A hub whose key and CA are replaced while it runs, and while people work through its line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use linesman::agent::link::LinkState;
use linesman::assertion::{AssertionError, Expected, verify};
use linesman::clock;
use linesman::hub::assertion::{Request, Subject, issue};
use linesman::hub::serve::renew;
use linesman::hub::trust::Times;
use linesman::hub::{HubKeys, access::Mode};
use linesman::keys::KeyPair;
use linesman::kubeapi::trace::TraceParent;
use linesman::wire::api::{AgentBuild, HubKey};
use linesman::wire::id::ClusterName;
use serde_json::json;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::moved::{applied, back};
use super::older::{self, Running};
use super::rotate::world::Secrets;
use super::support::TestHub;
use crate::proxy;
use crate::wait::until;

/// Longer than all of a change takes here.
const WHOLE: Duration = Duration::from_mins(1);
const PEOPLE: usize = 2;

fn eu1() -> ClusterName {
    "eu1".parse().unwrap()
}

/// What is new is told for a while, and what was before counts for a while.
fn soon() -> Times {
    let now = clock::now();
    Times {
        now,
        used: now + Duration::from_secs(15),
        ends: now + Duration::from_secs(28),
    }
}

/// How many certificates a PEM has.
fn certificates(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// Somebody who trusts `ca`, and has a connection of its own for each request.
fn client(to: SocketAddr, ca: &str) -> reqwest::Client {
    reqwest::Client::builder()
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(ca.as_bytes()).unwrap())
        .resolve("localhost", to)
        .pool_max_idle_per_host(0)
        .no_proxy()
        .build()
        .unwrap()
}

async fn ask(client: &reqwest::Client, to: SocketAddr, token: &str) -> Result<u16, String> {
    let url = format!("https://localhost:{}/clusters/eu1/api/v1/pods", to.port());
    let answer = client.get(url).bearer_auth(token).send().await;
    answer
        .map(|answer| answer.status().as_u16())
        .map_err(|error| format!("{error:?}"))
}

/// Requests one after the other; what became of those that did not go well.
struct People {
    over: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    asking: JoinSet<Vec<String>>,
}

impl People {
    fn start(to: SocketAddr, token: &str, ca: &watch::Receiver<String>) -> Self {
        let (over, good) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut asking = JoinSet::new();
        for _ in 0..PEOPLE {
            let (over, good, token, ca) =
                (over.clone(), good.clone(), token.to_owned(), ca.clone());
            asking.spawn(async move {
                let (mut bad, mut roots) = (Vec::new(), ca.borrow().clone());
                let mut own = client(to, &roots);
                while !over.load(Ordering::Relaxed) {
                    if *ca.borrow() != roots {
                        roots.clone_from(&ca.borrow());
                        own = client(to, &roots);
                    }
                    match ask(&own, to, &token).await {
                        Ok(200) => drop(good.fetch_add(1, Ordering::Relaxed)),
                        other => bad.push(format!("{other:?}")),
                    }
                }
                bad
            });
        }
        Self { over, good, asking }
    }

    /// Some more of them went well.
    async fn go_on(&self) {
        let before = self.good.load(Ordering::Relaxed);
        until("people go on", WHOLE, async || {
            self.good.load(Ordering::Relaxed) > before + 2 * PEOPLE
        })
        .await;
    }

    async fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        assert_eq!(self.asking.join_all().await.concat(), Vec::<String>::new());
        assert!(self.good.load(Ordering::Relaxed) > 0);
    }
}

/// A hub, an agent of this build with its line up, and a user's token.
async fn world(name: &str, build: Option<AgentBuild>) -> (TestHub, Running, String) {
    let hub = TestHub::start(name).await;
    let (agent, ada) = adopted(&hub, build).await;
    (hub, agent, ada)
}

async fn adopted(hub: &TestHub, build: Option<AgentBuild>) -> (Running, String) {
    let token = hub.add("eu1").await;
    let (secrets, join) = (Secrets::default(), applied(hub, &token));
    let mut agent = match build {
        None => older::dialling(Some(join), &secrets).await,
        Some(build) => older::dialling_as(build, Some(join), &secrets).await,
    };
    back(&agent, hub).await;
    let id = hub.hub.store.cluster(&eu1()).await.unwrap().unwrap().id;
    let (hub_id, line) = (hub.hub.id.clone(), agent.line.clone());
    let none = tokio::sync::mpsc::channel(1).1;
    let streams = std::mem::replace(&mut agent.streams, none);
    agent.serve(async move { proxy::behind((&hub_id, &id), streams, line).await });
    let ada = hub.user("ada", &[], &[]).await;
    let grant = json!({"subject": "user:ada", "clusters": "all", "groups": ["admin"]});
    assert_eq!(hub.post("/v1/grants", &grant).await.0, 201);
    (agent, ada)
}

fn own_key(hub: &TestHub) -> KeyPair {
    let text = std::fs::read_to_string(hub.data().join("hub.key")).unwrap();
    KeyPair::from_openssh(&text).unwrap()
}

/// The one that is told and does not sign yet.
fn next_key(hub: &TestHub) -> KeyPair {
    let text = std::fs::read(hub.data().join("trust.json")).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
    KeyPair::from_openssh(told["next"]["key"].as_str().unwrap()).unwrap()
}

fn epoch(hub: &TestHub) -> u64 {
    hub.hub.tunnels.get(&eu1()).unwrap().facts().epoch
}

fn kids(keys: &[HubKey]) -> Vec<String> {
    keys.iter().map(|key| key.kid.clone()).collect()
}

/// Whether the agent takes a request on its line that this key signed.
fn takes(agent: &Running, hub: &TestHub, by: &KeyPair) -> Result<(), AssertionError> {
    let LinkState::Up { keyset, .. } = agent.line.borrow().clone() else {
        panic!("the line is down");
    };
    let (now, method) = (clock::now(), http::Method::GET);
    let keys = HubKeys::new(by.clone());
    let request = Request {
        hub_id: &hub.hub.id,
        cluster_id: "c",
        epoch: 1,
        id: "r",
        attempt: 0,
        method: &method,
        target: "/api",
        ip: "127.0.0.1",
        trace: TraceParent::begin([1; 16], [1; 8]),
    };
    let subject = Subject {
        user: "linesman:ada",
        groups: &[],
        actor: None,
        mode: Mode::Full,
        namespaces: None,
    };
    let meta = issue(&request, &subject, now, keys.kid(), |input| {
        keys.sign(input)
    })
    .unwrap();
    let expected = Expected {
        hub: &hub.hub.id,
        cluster: "c",
        epoch: 1,
        method: "GET",
        target: "/api",
        now: now.unix_timestamp(),
    };
    verify(&meta.assertion, &keyset, &expected).map(drop)
}

async fn at(when: OffsetDateTime) {
    until("it is time", WHOLE, async || clock::now() > when).await;
}

/// The key: told, then in use, then alone, and the one before refused.
async fn another_key(hub: &TestHub, agent: &Running, people: &People) {
    let (old, times) = (own_key(hub), soon());
    let renewed = renew::key(hub.data(), times).await.unwrap();
    let new = next_key(hub);
    assert_eq!(new.public().fingerprint(), renewed.after);
    assert_eq!(own_key(hub).public(), old.public());
    let [before, after] = [&old, &new].map(|key| HubKeys::new(key.clone()).pin().kid);
    until("both are told", WHOLE, async || {
        let told = hub.hub.reference();
        let joined = agent.joined.borrow();
        let known = joined.as_ref().map(|joined| &joined.assignment.hub);
        kids(&told.keyset) == [after.clone(), before.clone()] && known == Some(&told)
    })
    .await;
    assert_eq!(hub.hub.says().keys.kid(), before);
    until("both count on the line", WHOLE, async || {
        (takes(agent, hub, &old), takes(agent, hub, &new)) == (Ok(()), Ok(()))
    })
    .await;
    people.go_on().await;
    until("the next one signs", WHOLE, async || {
        hub.hub.says().keys.kid() == after
    })
    .await;
    // Times are in whole seconds.
    assert!(clock::now().unix_timestamp() >= times.used.unix_timestamp());
    // The private half of the one before is nowhere.
    assert_eq!(own_key(hub).public(), new.public());
    people.go_on().await;
    at(times.ends + Duration::from_secs(1)).await;
    let counts = (takes(agent, hub, &old), takes(agent, hub, &new));
    assert_eq!(counts, (Err(AssertionError::Key), Ok(())));
    until("the next one is told alone", WHOLE, async || {
        kids(&hub.hub.reference().keyset) == [after.clone()]
    })
    .await;
    back(agent, hub).await;
    // What follows in the record is signed as well.
    hub.hub.audit.anchor().await.unwrap();
}

/// The CA in the same way; people log in again while both are told.
async fn another_ca(
    hub: &TestHub,
    agent: &Running,
    people: &People,
    (login, token): (&watch::Sender<String>, &str),
) {
    let (first, to) = (hub.hub.says().trust.ca.clone(), hub.hub.config.listen);
    renew::ca(hub.data(), soon()).await.unwrap();
    until("both are told", WHOLE, async || {
        certificates(&hub.hub.says().trust.ca) == 2
    })
    .await;
    let both = std::fs::read_to_string(hub.data().join("ca.crt")).unwrap();
    assert_eq!(both, hub.hub.says().trust.ca);
    assert!(both.starts_with(&first));
    login.send_replace(both.clone());
    people.go_on().await;
    until("the next one serves", WHOLE, async || {
        let told = hub.hub.says().trust.ca.clone();
        certificates(&told) == 2 && told != both
    })
    .await;
    people.go_on().await;
    let refused = ask(&client(to, &first), to, token).await.unwrap_err();
    assert!(refused.contains("InvalidCertificate"), "{refused}");
    until("the next one is told alone", WHOLE, async || {
        certificates(&hub.hub.says().trust.ca) == 1
    })
    .await;
    assert_ne!(hub.hub.says().trust.ca, first);
    back(agent, hub).await;
    people.go_on().await;
}

/// H16, L17: with requests in a loop the key and then the CA of a hub that runs are replaced: no request fails, the line is the
/// one that it was, and what was before is refused as soon as it counts no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_and_ca_of_a_running_hub_are_replaced_without_a_request_that_fails() {
    let (hub, agent, ada) = world("renewed", None).await;
    let line = epoch(&hub);
    let (login, ca) = watch::channel(hub.hub.says().trust.ca.clone());
    let people = People::start(hub.hub.config.listen, &ada, &ca);
    people.go_on().await;
    another_key(&hub, &agent, &people).await;
    another_ca(&hub, &agent, &people, (&login, &ada)).await;
    people.stop().await;
    assert_eq!(epoch(&hub), line, "another line");
    hub.stop().await;
}

/// L17: an agent that knows the hub's keys by its handshake alone dials anew before the next one signs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_agents_line_is_replaced_before_the_next_key_signs() {
    let (hub, agent, ada) = world("renewed-older", Some(AgentBuild::default())).await;
    let (line, ca) = (
        epoch(&hub),
        watch::channel(hub.hub.says().trust.ca.clone()).1,
    );
    let people = People::start(hub.hub.config.listen, &ada, &ca);
    people.go_on().await;
    let before = hub.hub.says().keys.kid().to_owned();
    // Long enough for a busy machine to dial before it is over.
    let now = clock::now();
    let times = Times {
        now,
        used: now + Duration::from_secs(30),
        ends: now + Duration::from_secs(43),
    };
    renew::key(hub.data(), times).await.unwrap();
    until("it has another line", WHOLE, async || {
        let line_now = hub.hub.tunnels.get(&eu1());
        line_now.is_some_and(|now| now.facts().epoch > line)
    })
    .await;
    assert!(clock::now() < times.used, "it came too late");
    until("the next one signs", WHOLE, async || {
        hub.hub.says().keys.kid() != before
    })
    .await;
    people.go_on().await;
    people.stop().await;
    drop(agent);
    hub.stop().await;
}

/// H16, L17: each replica takes up the same key and CA, and neither is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_replica_takes_up_another_key_and_ca() {
    let ([a, b], _) = TestHub::replicas("renewed-replicas").await;
    let before = a.hub.reference();
    let now = clock::now();
    let times = Times {
        now,
        used: now + Duration::from_secs(4),
        ends: now + Duration::from_secs(15),
    };
    renew::key(a.data(), times).await.unwrap();
    renew::ca(a.data(), times).await.unwrap();
    let new = HubKeys::new(next_key(&a)).pin();
    for hub in [&a, &b] {
        until("what is new is told beside it", WHOLE, async || {
            let told = hub.hub.reference();
            told.keyset.len() == 2 && certificates(&told.ca) == 2
        })
        .await;
    }
    for hub in [&a, &b] {
        until("what is new is told alone", WHOLE, async || {
            let (said, told) = (hub.hub.says(), hub.hub.reference());
            said.keys.kid() == new.kid
                && told.keyset == [new.clone()]
                && certificates(&told.ca) == 1
        })
        .await;
    }
    assert_ne!(a.hub.reference().ca, before.ca);
    assert_eq!(a.hub.says().trust, b.hub.says().trust);
    a.leave().await;
    b.stop().await;
}

/// The second of two replicas ends as by a signal and starts again, and takes a request for the line at the first one.
async fn started_again(b: TestHub, ada: &str) -> TestHub {
    let data = b.data().to_owned();
    b.leave().await;
    let b = TestHub::open("renewed-starts", data).await;
    let (to, ca) = (b.hub.config.listen, b.hub.says().trust.ca.clone());
    assert_eq!(ask(&client(to, &ca), to, ada).await, Ok(200));
    b
}

/// H16, L17: a replica that is started at any moment of a change signs what the agent takes on its line at another one, told of
/// the next key or not; nobody's request fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_starts_at_any_moment_of_a_change_signs_what_agents_take() {
    let ([a, b], _) = TestHub::replicas("renewed-starts").await;
    let (agent, ada) = adopted(&a, None).await;
    let (line, before) = (epoch(&a), a.hub.says().keys.kid().to_owned());
    let (login, ca) = watch::channel(a.hub.says().trust.ca.clone());
    let people = People::start(a.hub.config.listen, &ada, &ca);
    let b = started_again(b, &ada).await;
    let now = clock::now();
    let times = Times {
        now,
        used: now + Duration::from_secs(30),
        ends: now + Duration::from_secs(42),
    };
    renew::key(a.data(), times).await.unwrap();
    renew::ca(a.data(), times).await.unwrap();
    login.send_replace(std::fs::read_to_string(a.data().join("ca.crt")).unwrap());
    let b = started_again(b, &ada).await;
    assert_eq!(b.hub.says().keys.kid(), before);
    assert!(clock::now() < times.used, "too slow to say anything");
    until("the next one signs", WHOLE, async || {
        a.hub.says().keys.kid() != before
    })
    .await;
    let b = started_again(b, &ada).await;
    let after = b.hub.says().keys.clone();
    assert_eq!(a.hub.says().keys.kid(), after.kid());
    at(times.ends + Duration::from_secs(1)).await;
    let b = started_again(b, &ada).await;
    assert_eq!(b.hub.reference().keyset, [after.pin()]);
    until("each says the same", WHOLE, async || {
        a.hub.says().trust == b.hub.says().trust
    })
    .await;
    back(&agent, &a).await;
    people.go_on().await;
    people.stop().await;
    assert_eq!(epoch(&a), line, "another line");
    a.leave().await;
    b.stop().await;
}
