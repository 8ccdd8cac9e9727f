//! L44, L51: Git over the line, between a real relay and a real hub: real `git` and OpenSSH, and bare TCP.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use linesman::agent::gitline::{self, Carried};
use linesman::clock;
use linesman::hub::git::{self, BRANCH};
use linesman::keys::KeyPair;
use linesman::secret::Secret;
use linesman::ssh::known_hosts::{KnownHosts, known_hosts_line};
use linesman::ssh::{self, Head, Probe, ProbeError};
use linesman::tunnel::{Line, Stream, carry};
use linesman::wire::api::{Assignment, GitRoute};
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::world::{Agent, PATIENCE, World};
use super::{code, echo, open};

#[path = "../../../benches/line/shaper.rs"]
#[allow(
    clippy::cast_precision_loss,
    reason = "lengths of single reads, as seconds"
)]
mod shaper;

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
            std::env::temp_dir().join(format!("linesman-gitline-{}", uuid::Uuid::now_v7()));
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

async fn git_stream(line: &Line, meta: &'static str) -> Stream {
    let meta = Bytes::from_static(meta.as_bytes());
    line.open(Kind::Git, Class::Normal, meta).await.unwrap()
}

/// The error that the stream ends with.
async fn ends_with(mut stream: Stream) -> (Option<Code>, String) {
    let mut byte = [0; 1];
    let read = timeout(PATIENCE, stream.read(&mut byte)).await.unwrap();
    let error = read.expect_err("the stream is refused");
    (code(&error), error.to_string())
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

/// L51: whatever a clone brings, interactive streams pass beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echoes_pass_beside_a_big_clone() {
    let times = clone_beside_echoes(World::new().await, 24).await;
    assert!(times.len() > 10, "{} echoes", times.len());
}

/// L51, with figures: `make large`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a gigabyte through git, ssh and the line: make large"]
async fn echoes_beside_a_clone_of_five_hundred_megabytes() {
    println!("{}", told(World::new().await, (500, "")).await);
}

/// L51, L27: the same on 200 Mbit/s with a queue of 20 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute of git and ssh over a narrow line: make large"]
async fn echoes_beside_a_clone_of_a_hundred_megabytes_on_a_narrow_way() {
    let narrow = |hub: SocketAddr| {
        let way = shaper::Way {
            megabits: 200,
            rtt: Duration::ZERO,
        };
        way.to(&hub.to_string())
    };
    let world = World::reached_by(narrow).await;
    println!(
        "{}",
        told(world, (100, " on 200 Mbit/s, 20 ms queue")).await
    );
}

/// The figure of a clone of so many MB.
async fn told(world: World, (megabytes, way): (usize, &str)) -> String {
    let began = std::time::Instant::now();
    let times = clone_beside_echoes(world, megabytes).await;
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    format!(
        "figure | L51 | 64 B echo beside a clone of {megabytes} MB{way}, {} echoes: p50 / p99 | ≤ 20 / ≤ 60 ms | {:.2?} / {:.2?}; all of it {:.1?}",
        times.len(),
        at(50),
        at(99),
        began.elapsed()
    )
}

/// Clones the world's catalog, made that large, over a line that carries echoes at the same time; their times, shortest first.
async fn clone_beside_echoes(world: World, megabytes: usize) -> Vec<Duration> {
    let assignment = world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let _echo = echo(agent.incoming);
    grow(&world.hub.catalog.repo, megabytes).await;
    let client = Client::new(&world, &assignment.catalog.known_hosts);
    let mut stream = open(&world.line(1).await).await;
    let mut times = Vec::new();
    let echoes = async {
        loop {
            let sent = tokio::time::Instant::now();
            stream.write_all(&[7; 64]).await.unwrap();
            let mut back = [0; 64];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, [7; 64]);
            times.push(sent.elapsed());
        }
    };
    let limit = PATIENCE * 10;
    let cloned = tokio::select! {
        cloned = timeout(limit, client.cloning(&relay, "big")) => cloned.expect("the clone ends"),
        () = echoes => unreachable!("echoes go on"),
    };
    assert!(cloned.status.success(), "{cloned:?}");
    // Git has checked every object by its hash.
    let big = std::fs::metadata(client.file("big/big/0")).unwrap();
    assert_eq!(big.len(), 1 << 20);
    assert!(client.file(&format!("big/big/{}", megabytes - 1)).exists());
    world.end().await;
    times.sort_unstable();
    times
}

/// Commits files of 1 MiB each that nothing compresses.
async fn grow(repository: &Path, megabytes: usize) {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(repository).args(args);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").kill_on_drop(true);
        git
    };
    // No attempt at deltas, here or where it is served.
    let config = ["config", "core.bigFileThreshold", "1k"];
    assert!(git(&config).status().await.unwrap().success());
    let mut import = git(&["fast-import", "--quiet"]);
    let mut import = import.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = tokio::io::BufWriter::new(import.stdin.take().unwrap());
    let head = "commit refs/heads/main\ncommitter test <test@lab.invalid> 1700000000 +0000\ndata 3\nbig\nfrom refs/heads/main^0\n";
    input.write_all(head.as_bytes()).await.unwrap();
    let mut state = u64::from_le_bytes(clock::random()) | 1;
    for n in 0..megabytes {
        let mut block = Vec::with_capacity(1 << 20);
        while block.len() < 1 << 20 {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        let file = format!("M 100644 inline big/{n}\ndata {}\n", block.len());
        input.write_all(file.as_bytes()).await.unwrap();
        input.write_all(&block).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }
    input.shutdown().await.unwrap();
    drop(input);
    assert!(import.wait().await.unwrap().success());
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

/// L44: an agent names no target. Whatever it says, the stream reaches the recorded host or nothing.
#[tokio::test]
async fn a_git_stream_reaches_the_recorded_host_and_nothing_else() {
    let world = World::new().await;
    let (_agent, line) = up(&world).await;
    let good = "{}";
    world.route(GitRoute::Direct).await;
    let (found, words) = ends_with(git_stream(&line, good).await).await;
    assert_eq!(
        found,
        Some(Code::DeniedTarget),
        "a cluster that takes Git directly"
    );
    assert!(words.contains("linesman cluster git"), "{words}");
    world.route(GitRoute::Line).await;
    for meta in [
        r#"{"host":"169.254.169.254","port":80}"#,
        r#"{"address":"127.0.0.1:8443"}"#,
        r#"{"host":"kubernetes.default.svc"}"#,
        r#"{"host":"127.0.0.1","port":10250}"#,
        "[]",
        "null",
        "",
        "\0",
    ] {
        let (found, _) = ends_with(git_stream(&line, meta).await).await;
        assert_eq!(found, Some(Code::DeniedTarget), "{meta}");
    }
    let mut greeting = [0; 8];
    let mut stream = git_stream(&line, good).await;
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"SSH-2.0-");
    world.route(GitRoute::Direct).await;
    let (found, _) = ends_with(git_stream(&line, good).await).await;
    assert_eq!(found, Some(Code::DeniedTarget));
    world.end().await;
}

/// A host that takes connections and says nothing.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn the_sixty_fifth_stream_of_a_line_is_refused() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (_agent, line) = up(&world).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let stream = git_stream(&line, "{}").await;
        let (socket, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
        held.push((stream, socket));
    }
    let (found, words) = ends_with(git_stream(&line, "{}").await).await;
    assert_eq!(found, Some(Code::Limit), "{words}");
    // A place is free as soon as one of them is over.
    drop(held.pop());
    let again = async {
        loop {
            let stream = git_stream(&line, "{}").await;
            let cancelled = stream.cancelled();
            tokio::select! {
                accepted = host.accept() => break (stream, accepted.unwrap().0),
                () = cancelled.cancelled() => {}
            }
        }
    };
    held.push(timeout(PATIENCE, again).await.expect("a place is free"));
    world.end().await;
}

#[tokio::test]
async fn the_engine_gets_sixty_four_connections_and_then_a_reset() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let socket = relay.connect().await;
        let accepted = timeout(PATIENCE, host.accept()).await;
        held.push((socket, accepted.unwrap().unwrap()));
    }
    let mut refused = relay.connect().await;
    let read = timeout(PATIENCE, refused.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}

/// L51: the code of the hub's dial is what the cluster shows, and the engine sees a reset, not an end.
#[tokio::test]
async fn a_failed_dial_resets_the_connection_and_is_shown_with_its_code() {
    let (host, address) = silent().await;
    drop(host);
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let mut relay = Relay::of(&agent).await;
    let mut socket = relay.connect().await;
    let mut byte = [0; 1];
    let read = timeout(PATIENCE, socket.read(&mut byte)).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let Carried::Badly(error) = relay.carried().await else {
        panic!("the dial failed");
    };
    assert_eq!(error.code, Code::DialRefused);
    assert!(error.text.contains(&address.to_string()), "{error}");
    let (carried, _) = watch::channel(Carried::Nothing);
    let heard = gitline::heard(agent.state.clone(), &carried, PATIENCE).await;
    assert_eq!(heard.err().map(|e| e.code), Some(Code::DialRefused));
    world.end().await;
}

#[tokio::test]
async fn half_close_passes_in_both_directions() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut engine = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    engine.write_all(b"question").await.unwrap();
    engine.shutdown().await.unwrap();
    let mut question = String::new();
    let read = server.read_to_string(&mut question);
    timeout(PATIENCE, read)
        .await
        .expect("the end arrives")
        .unwrap();
    assert_eq!(question, "question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    let read = engine.read_to_string(&mut answer);
    timeout(PATIENCE, read)
        .await
        .expect("the end arrives")
        .unwrap();
    assert_eq!(answer, "answer");
    // And a reset is a reset.
    let mut engine = relay.connect().await;
    let (server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    carry::reset(&server);
    drop(server);
    let read = timeout(PATIENCE, engine.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}

/// L51: a line that breaks in the middle of a clone must not look like its end; the next try waits for the next line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_breaks_resets_what_it_carried_and_a_retry_goes_over_the_next() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut engine = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let mut pack = JoinSet::new();
    pack.spawn(async move {
        let block = vec![7; 64 << 10];
        while server.write_all(&block).await.is_ok() {}
    });
    let mut part = vec![0; 1 << 20];
    timeout(PATIENCE, engine.read_exact(&mut part))
        .await
        .unwrap()
        .unwrap();
    world.cut.send_modify(|cuts| *cuts += 1);
    let rest = async {
        loop {
            match engine.read(&mut part).await {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        }
    };
    let end = timeout(PATIENCE, rest).await.expect("the cut is noticed");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let done = timeout(PATIENCE, pack.join_next()).await;
    done.expect("the Git host hears of it, too");
    // Straight away, while the line is still away.
    let mut again = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    server.write_all(b"hello").await.unwrap();
    let mut hello = [0; 5];
    timeout(PATIENCE, again.read_exact(&mut hello))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&hello, b"hello");
    world.end().await;
}

#[tokio::test]
async fn a_silent_connection_is_over_after_its_time() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (_agent, line) = up(&world).await;
    let stream = git_stream(&line, "{}").await;
    let (_server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let (listener, address) = silent().await;
    let mut engine = TcpStream::connect(address).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let idle = Duration::from_millis(50);
    let carried = timeout(PATIENCE, carry::carry(stream, socket, idle))
        .await
        .unwrap();
    assert_eq!(carried.unwrap_err().kind(), ErrorKind::TimedOut);
    let read = timeout(PATIENCE, engine.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}
