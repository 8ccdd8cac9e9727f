//! A hub, an agent's part that replaces keys, and an engine that fetches with what it holds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linesman::agent::caller::{Call, Caller};
use linesman::agent::enroll::gitpath::GitPath;
use linesman::agent::enroll::join::{Belief, Joining};
use linesman::agent::enroll::keyring::Keyring;
use linesman::agent::enroll::rotate::Rotating;
use linesman::agent::enroll::stored::Join;
use linesman::agent::enroll::{Context, stored};
use linesman::agent::fault::Faults;
use linesman::agent::gitline::Carried;
use linesman::agent::identity::{self, Identity};
use linesman::agent::link::{self, Around, LinkConfig, LinkState};
use linesman::agent::{Joined, News};
use linesman::clock;
use linesman::keys::{KeyPair, Public};
use linesman::lifetime::hearts::Hearts;
use linesman::manifests::{EngineNamespaces, scope::Extent};
use linesman::secret::Secret;
use linesman::ssh::{Head, ProbeError};
use linesman::tunnel::Line;
use linesman::wire::api::{AgentBuild, Assignment, CatalogRef};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::support::{Agent, TestHub};
use crate::wait::until_some;

mod secrets;

pub(in crate::hub) use secrets::Secrets;

pub(in crate::hub) const PATIENCE: Duration = Duration::from_secs(30);

/// An agent's part that replaces keys, with what feeds it; dropped, it ends as by SIGKILL.
pub(in crate::hub) struct Running {
    pub(in crate::hub) identity: watch::Receiver<Identity>,
    pub(super) denied: watch::Sender<u32>,
    /// Calls to the hub that failed.
    pub(super) failed: Arc<Mutex<Vec<String>>>,
    pub(in crate::hub) line: watch::Receiver<LinkState>,
    pub(super) _tasks: JoinSet<()>,
}

/// How the engine in the cluster fares meanwhile.
#[derive(Debug, Default)]
pub(in crate::hub) struct Fetches {
    pub(in crate::hub) good: u32,
    pub(in crate::hub) failed: Vec<String>,
    /// The fingerprint of the key in its Secret.
    pub(super) key: String,
}

pub(in crate::hub) struct World {
    pub(in crate::hub) hub: TestHub,
    pub(super) secrets: Secrets,
    pub(super) assignment: Assignment,
    /// What the engine's Secret holds.
    pub(super) given: watch::Sender<KeyPair>,
    /// The key of the last good fetch.
    pub(super) fetched: watch::Sender<String>,
    pub(in crate::hub) log: Arc<Mutex<Fetches>>,
    pub(super) _engine: JoinSet<()>,
}

impl World {
    pub(in crate::hub) async fn new(name: &str) -> Self {
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

    fn context(&self, faults: Faults, news: mpsc::Sender<News>) -> Context {
        Context {
            kube: self.secrets.client(),
            namespace: "linesman".to_owned(),
            engines: EngineNamespaces::default(),
            extent: Extent::Cluster,
            pod: "agent".to_owned(),
            cluster: cluster(),
            build: AgentBuild::default(),
            faults,
            news,
            heart: None,
        }
    }

    /// A process of the agent, which finds what the one before stored.
    pub(in crate::hub) async fn agent(&self, faults: Faults) -> Running {
        self.agent_of(faults, None).await
    }

    /// The same to which new YAML was applied.
    pub(in crate::hub) async fn agent_of(&self, faults: Faults, applied: Option<Join>) -> Running {
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
            strange: false,
        });
        let dial = LinkConfig {
            hub: watch::channel(self.assignment.hub.clone()).1,
            cluster: cluster(),
            keys: identity.clone(),
            build: AgentBuild::default(),
            instance: clock::id(),
            proxy: watch::channel(None).1,
        };
        let (news, mut told) = mpsc::channel::<News>(64);
        let caller = Caller::new(identity.clone(), joined.subscribe(), link.clone());
        let denied = watch::Sender::new(0);
        let (disowned_out, disowned) = watch::channel(None);
        let joining = applied.map(|join| {
            let outs = (joined.clone(), disowned_out.clone());
            self.joining(join, (news.clone(), caller.clone()), identity.clone(), outs)
        });
        let rotating = Rotating {
            context: self.context(faults, news),
            keyring,
            caller: caller.clone(),
            path: GitPath {
                link: link.clone(),
                carried: watch::Sender::new(Carried::default()),
            },
            heart: Hearts::default().heart("rotate", Duration::from_mins(1)),
            joined: joined.subscribe(),
            fetched: self.fetched.subscribe(),
            disowned,
            denied: denied.subscribe(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(joins(joining, disowned_out));
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

    /// What YAML with this token brings.
    pub(in crate::hub) fn yaml(&self, token: String) -> Join {
        Join {
            token: Some(Secret::new(token)),
            echoed: false,
            hub: self.hub.hub.config.url.clone(),
            hub_keys: Vec::new(),
            ca: std::fs::read_to_string(self.hub.data().join("ca.crt")).unwrap(),
            cluster: cluster(),
            proxy: None,
        }
    }

    /// The agent's part that joins with YAML that was applied.
    fn joining(
        &self,
        join: Join,
        (news, caller): (mpsc::Sender<News>, Caller),
        keys: watch::Receiver<Identity>,
        (joined, disowned): (watch::Sender<Option<Joined>>, watch::Sender<Option<Public>>),
    ) -> Joining {
        Joining {
            context: self.context(Faults::default(), news),
            keys,
            caller,
            around: Around::default(),
            state: None,
            applied: Some(join),
            heart: Hearts::default().heart("join", Duration::from_mins(1)),
            joined,
            disowned,
            kept: watch::Sender::new(None),
            spoken: watch::Sender::new(0).subscribe(),
            proven: watch::Sender::new(String::new()).subscribe(),
            doubts: false,
            belief: Belief::default(),
            other: None,
        }
    }

    pub(super) async fn ask(&self) -> Value {
        let asked = json!({"deployKey": true});
        let (code, wish) = self.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        wish
    }

    /// The hub's end of the agent's line, once that is up.
    pub(super) async fn up(&self) -> Line {
        let here = async || self.hub.hub.tunnels.get(&cluster()).ok_or("no line");
        until_some("the line is up", PATIENCE, here).await
    }

    /// Kind, state and fingerprint of the cluster's keys that are in force.
    pub(in crate::hub) async fn in_force(&self, kind: &str) -> Vec<String> {
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
    pub(in crate::hub) async fn identified(&self, agent: &Running, old: &KeyPair) -> KeyPair {
        until_some("another identity is in force", PATIENCE, async || {
            let keys = agent.identity.borrow().clone();
            let own = keys.identity.public();
            let at_hub = self.in_force("identity").await;
            let line = agent.line.borrow().clone();
            let up = matches!(line, LinkState::Up { .. });
            let done = keys.next_identity.is_none() && own != old.public() && up;
            if done && at_hub == [own.fingerprint()] {
                return Ok(keys.identity);
            }
            let own = own.fingerprint();
            Err(format!("own {own}, at the hub {at_hub:?}, line {line:?}"))
        })
        .await
    }

    /// Until hub, Secret and engine have one and the same key, which is not `old`.
    pub(super) async fn settled(&self, agent: &Running, old: &str) -> String {
        until_some("another deploy key is in force", PATIENCE, async || {
            let keys = agent.identity.borrow().clone();
            let own = keys.deploy.public().fingerprint();
            let at_hub = self.in_force("deploy").await;
            let engine = self.log.lock().unwrap().key.clone();
            let done = keys.next_deploy.is_none() && !keys.unsettled && own != old;
            if done && at_hub == [own.clone()] && engine == own {
                let stored = self.secrets.keys().await.deploy.public().fingerprint();
                assert_eq!(stored, own);
                return Ok(own);
            }
            Err(format!(
                "own {own}, at the hub {at_hub:?}, the engine has {engine}, {keys:?}"
            ))
        })
        .await
    }
}

pub(super) fn cluster() -> linesman::wire::id::ClusterName {
    "eu1".parse().unwrap()
}

/// Joins, where there is YAML to join with; the channel is there in any case.
async fn joins(joining: Option<Joining>, _disowned: watch::Sender<Option<Public>>) {
    if let Some(joining) = joining {
        let joined = Box::pin(joining.run(CancellationToken::new()));
        joined.await.unwrap();
    }
    std::future::pending::<()>().await;
}

/// The assignment is followed, and the engine's Secret after the keys.
pub(super) async fn follow(
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

/// A look at the catalog with this key, over real SSH.
pub(in crate::hub) async fn read_catalog(
    catalog: &CatalogRef,
    key: &KeyPair,
) -> Result<Head, ProbeError> {
    let (_, link) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: "none here".to_owned(),
        attempt: 0,
        strange: false,
    });
    let path = GitPath {
        link,
        carried: watch::Sender::new(Carried::default()),
    };
    let url = catalog.url.parse().unwrap();
    let private = identity::private_file(key, &cluster()).unwrap();
    path.walk(&url, catalog, &private).await
}

/// The engine: fetches without end with what its Secret holds, and tells of each good fetch.
pub(super) async fn fetch(
    assignment: Assignment,
    mut given: watch::Receiver<KeyPair>,
    told: watch::Sender<String>,
    fetches: Arc<Mutex<Fetches>>,
) {
    loop {
        let key = given.borrow_and_update().clone();
        let read = read_catalog(&assignment.catalog, &key).await;
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
