//! L44, L51: Git over the line, between a real relay and a real hub: real `git` and OpenSSH, and bare TCP.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use linesman::agent::gitline::{self, Carried};
use linesman::hub::git::{self, BRANCH};
use linesman::keys::KeyPair;
use linesman::secret::Secret;
use linesman::ssh::known_hosts::{KnownHosts, known_hosts_line};
use linesman::ssh::{self, Head, Probe, ProbeError};
use linesman::tunnel::Line;
use linesman::wire::api::{Assignment, GitRoute};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::world::{Agent, PATIENCE, World};

mod beside;
mod tcp;

const SERVICE: &str = "linesman-git.linesman.svc";

/// A relay as in a cluster, on a port of this machine.
struct Relay {
    port: u16,
    carried: watch::Receiver<Carried>,
    _task: JoinSet<()>,
}

impl Relay {
    async fn of(agent: &Agent) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (out, carried) = watch::channel(Carried::Nothing);
        let mut task = JoinSet::new();
        let stop = agent.stop.clone();
        task.spawn(gitline::serve(listener, agent.state.clone(), out, stop));
        Self {
            port,
            carried,
            _task: task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// What is known of the Git host, once that is something.
    async fn carried(&mut self) -> Carried {
        let known = self.carried.wait_for(|c| *c != Carried::Nothing);
        timeout(PATIENCE, known).await.unwrap().unwrap().clone()
    }
}

/// A Git client as the engine is one: key and host keys of the cluster, nothing else.
struct Client {
    folder: PathBuf,
}

impl Client {
    fn new(world: &World, known_hosts: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder =
            std::env::temp_dir().join(format!("linesman-gitline-{}", linesman::clock::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = folder.join("key");
        let text = world.deploy.openssh("test").unwrap();
        std::fs::write(&key, text.expose()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(folder.join("known_hosts"), known_hosts).unwrap();
        Self { folder }
    }

    async fn clone_from(&self, relay: &Relay, into: &str) -> Output {
        timeout(PATIENCE, self.cloning(relay, into)).await.unwrap()
    }

    async fn cloning(&self, relay: &Relay, into: &str) -> Output {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let ssh = format!(
            "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes \
             -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile={} \
             -o HostKeyAlias={SERVICE} -o CheckHostIP=no",
            at("key"),
            at("known_hosts"),
        );
        let url = format!("ssh://git@127.0.0.1:{}/catalog.git", relay.port);
        let mut git = Command::new("git");
        git.args(["clone", "-q", &url, &at(into)])
            .env("GIT_SSH_COMMAND", ssh)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        git.output().await.unwrap()
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

async fn up(world: &World) -> (Agent, Line) {
    let mut agent = world.agent();
    let line = agent.up().await;
    (agent, line)
}

/// L51: SSH runs end to end, so the host key of the real host is what the client checks, under the Service's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_clones_over_the_line_and_refuses_another_host_key() {
    let world = World::new().await;
    let assignment = world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let mut relay = Relay::of(&agent).await;
    let client = Client::new(&world, &assignment.catalog.known_hosts);
    let cloned = client.clone_from(&relay, "clone").await;
    assert!(cloned.status.success(), "{cloned:?}");
    assert!(is_catalog(&client.file("clone")));
    assert_eq!(relay.carried().await, Carried::Well);

    let other = KeyPair::from_seed(&[7; 32]).public();
    let wary = Client::new(&world, &known_hosts_line(SERVICE, 22, other));
    let refused = wary.clone_from(&relay, "clone").await;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("Host key verification failed"), "{words}");
    // Whose key it is that was shown.
    let known = KnownHosts::parse(&assignment.catalog.known_hosts).unwrap();
    let real = known.host_keys(SERVICE, 22);
    assert!(words.contains(&real[0].fingerprint), "{words}");
    assert!(!wary.file("clone").exists());
    world.end().await;
}

fn is_catalog(clone: &Path) -> bool {
    clone.join("base").is_dir() && clone.join(".git").is_dir()
}

/// L51: the agent's own look goes the same way and names the step that fails; of a wrong host key it tells both fingerprints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_own_probe_goes_over_the_line() {
    let world = World::new().await;
    let assignment = world.route(GitRoute::Line).await;
    assert_eq!(
        assignment.catalog.source(),
        format!("ssh://git@{SERVICE}/catalog.git")
    );
    let (agent, _line) = up(&world).await;
    let (carried, _) = watch::channel(Carried::Nothing);
    let key = world.deploy.openssh("test").unwrap();
    let head = git::head(&world.hub.catalog.repo, BRANCH).await.unwrap();
    let found = probe(&agent, &carried, &assignment, &key).await.unwrap();
    assert_eq!(found.commit, head.unwrap());
    let real = found.host_key;
    assert_eq!(*carried.borrow(), Carried::Well);
    let mut other = assignment;
    let wrong = KeyPair::from_seed(&[7; 32]).public();
    other.catalog.known_hosts = known_hosts_line(SERVICE, 22, wrong);
    let found = probe(&agent, &carried, &other, &key).await;
    let Err(ProbeError::HostKey {
        presented,
        expected,
        text,
    }) = found
    else {
        panic!("a wrong host key is refused at its step: {found:?}");
    };
    assert_eq!(presented.as_ref(), Some(&real));
    assert_eq!(expected, [wrong.fingerprint()]);
    assert!(
        text.contains(&real.fingerprint) && text.contains(&expected[0]),
        "{text}"
    );
    world.end().await;
}

async fn probe(
    agent: &Agent,
    carried: &watch::Sender<Carried>,
    assignment: &Assignment,
    key: &Secret<String>,
) -> Result<Head, ProbeError> {
    let url = assignment.catalog.source().parse().unwrap();
    let stream = gitline::heard(agent.state.clone(), carried, PATIENCE).await;
    let probe = Probe {
        url: &url,
        private_key: key,
        known_hosts: &assignment.catalog.known_hosts,
        branch: &assignment.catalog.branch,
    };
    ssh::probe_over(probe, stream.unwrap(), PATIENCE).await
}
