//! Two replicas of a hub as programs of their own: on one PostgreSQL and one data directory, behind a balancer.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, OnceLock};

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::hub::{Hub, Replica};
use super::place::Place;
use super::world::{CLUSTER, World};
use super::{seconds, until};

static SITE: OnceLock<Mutex<Site>> = OnceLock::new();

/// People come to the world's hub, the cluster's agent by the balancer to the replica that was chosen.
pub(crate) struct Site {
    world: World,
    pub(crate) other: Hub,
    /// For HTTPS and for Git.
    doors: [Door; 2],
    pub(crate) runtime: Runtime,
}

/// Which replicas the balancer sends to; the first of them that takes a connection has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// The one that people come to, else the other.
    People,
    /// The other one, else that.
    Other,
    /// What stands goes on.
    Nobody,
}

impl Deref for Site {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Site {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

/// Both replicas run, the cluster is adopted, and its line is at the one that people do not come to.
pub(crate) fn apart() -> MutexGuard<'static, Site> {
    const NAME: &str = "replicas";
    let shared = SITE.get_or_init(|| Mutex::new(Site::open(NAME)));
    let mut site = shared.lock().unwrap_or_else(|failed| {
        let mut site = failed.into_inner();
        if let Some(name) = site.world.anew(NAME) {
            *site = Site::open(&name);
        }
        shared.clear_poison();
        site
    });
    if !site.other.runs() {
        site.other.up();
    }
    // An agent whose lines do not last dials ever more slowly.
    if !has_line(&site.other) {
        site.send(To::Other);
    }
    if site.world.adoption.is_none() {
        site.world.adopt();
    }
    site.line_is_at_the_other();
    site
}

impl Site {
    fn open(name: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let url = runtime.block_on(crate::postgres::database());
        let mut made = None;
        let manifest = Place::bundle("flux");
        let world = World::open_at(name, "flux", &manifest, |directory, place| {
            let database = directory.join("database.url");
            fs::write(&database, &url).unwrap();
            let doors = [(); 2].map(|()| Door::open(&runtime, place[0]));
            let replica = |name| Replica {
                name,
                database: database.clone(),
                doors: doors.each_ref().map(|door| door.port),
            };
            let hub = Hub::start_as(directory, place, Some(replica("hub-a")));
            let other = Hub::start_as(directory, place, Some(replica("hub-b")));
            made = Some((doors, other));
            hub
        });
        let (doors, other) = made.unwrap();
        Self {
            world,
            other,
            doors,
            runtime,
        }
    }

    /// From now on the balancer sends there; what stands is cut, but for nobody.
    pub(crate) fn send(&self, to: To) {
        let (a, b) = (&self.world.hub, &self.other);
        let all = match to {
            To::People => vec![a, b],
            To::Other => vec![b, a],
            To::Nobody => Vec::new(),
        };
        let host = self.world.place.host.parse::<Ipv4Addr>().unwrap();
        let ports: [fn(&Hub) -> u16; 2] = [Hub::https_port, Hub::git_port];
        for (door, port) in self.doors.iter().zip(ports) {
            let all = all.iter().map(|hub| SocketAddr::from((host, port(hub))));
            door.to.send_replace(all.collect());
        }
    }

    /// Waits until both replicas say that the line is at the other one.
    pub(crate) fn line_is_at_the_other(&self) {
        until("the line is at the other replica", seconds(60), || {
            has_line(&self.other) && !has_line(&self.world.hub) && self.world.line_is_up()
        });
    }

    /// What the other replica says of the line that it has.
    pub(crate) fn line_there(&self) -> Value {
        self.other.json(&["line", CLUSTER])
    }
}

/// What a line carries is known only where it is.
pub(crate) fn has_line(hub: &Hub) -> bool {
    let line = hub.try_json(&["line", CLUSTER]);
    line.is_ok_and(|line| line["up"] == json!(true) && !line["streams"]["api"].is_null())
}

/// A balancer's address, which passes connections on.
struct Door {
    port: u16,
    to: watch::Sender<Vec<SocketAddr>>,
}

impl Door {
    fn open(runtime: &Runtime, host: &str) -> Self {
        let listener = runtime.block_on(TcpListener::bind((host, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = watch::Sender::new(Vec::new());
        runtime.spawn(pass(listener, to.subscribe()));
        Self { port, to }
    }
}

async fn pass(listener: TcpListener, to: watch::Receiver<Vec<SocketAddr>>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut inside, _) = listener.accept().await.unwrap();
        let mut to = to.clone();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let replicas = to.borrow_and_update().clone();
            let passing = async {
                for replica in replicas {
                    if let Ok(mut outside) = TcpStream::connect(replica).await {
                        let _ended = copy_bidirectional(&mut inside, &mut outside).await;
                        return;
                    }
                }
            };
            tokio::select! {
                () = passing => {}
                () = cut(&mut to) => {}
            }
        });
    }
}

/// Completes when connections are to go elsewhere.
async fn cut(to: &mut watch::Receiver<Vec<SocketAddr>>) {
    while to.changed().await.is_ok() {
        if !to.borrow_and_update().is_empty() {
            return;
        }
    }
}
