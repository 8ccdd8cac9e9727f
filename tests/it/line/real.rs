//! L12, with what stands there for real: nginx, which ends TLS, speaks HTTP/1.1 only, serves the hub below a prefix and cuts
//! what is idle for a minute; and Squid, which asks for credentials.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use linesman::agent::link::ProxyConfig;
use linesman::secret::Secret;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::proxy::UNAUTHORISED;
use super::world::{PATIENCE, World, trusting};
use super::{echo, open, pattern, round_trip};
use crate::proxy;

/// What nginx calls the hub, whose certificate has that name. It looks at no address in a certificate.
pub(super) const HUB: &str = "hub.test";
/// Below which nginx has the hub.
pub(super) const PREFIX: &str = "/linesman";
/// Longer than nginx' patience with a silent peer.
const IDLE: Duration = Duration::from_secs(70);

/// A server of somebody else's in the foreground, with a directory of its own. It ends with this process in any case.
struct Server {
    child: Child,
    place: PathBuf,
}

impl Server {
    fn start(place: PathBuf, program: &str, arguments: &[&str]) -> Self {
        let found = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program])
            .args(arguments)
            .current_dir(&place)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = found.unwrap_or_else(|why| panic!("start {program}: {why}"));
        Self { child, place }
    }

    /// Waits until it takes connections.
    fn listens(mut self, at: SocketAddr) -> Self {
        let began = Instant::now();
        while std::net::TcpStream::connect(at).is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "{}: {ended:?}; are nginx-light and squid installed ('tests/prepare proxies')?",
                self.place.display()
            );
            std::thread::yield_now();
        }
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.place));
    }
}

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("linesman-{name}-{}", linesman::clock::id()));
    std::fs::create_dir(&place).unwrap();
    place
}

/// A port that is free now.
fn port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn put(place: &Path, name: &str, text: &str) {
    std::fs::write(place.join(name), text).unwrap();
}

/// nginx before a hub.
pub(super) struct Nginx {
    pub(super) address: SocketAddr,
    /// Of its own certificate.
    pub(super) ca: String,
    _server: Server,
}

impl Nginx {
    /// Before the hub that listens there, with a certificate that this CA signed.
    pub(super) fn before(hub: SocketAddr, hub_ca: &str) -> Self {
        let (place, address) = (place("nginx"), port());
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        put(&place, "hub.pem", hub_ca);
        put(&place, "front.pem", &made.cert.pem());
        put(&place, "front.key", &made.signing_key.serialize_pem());
        put(&place, "nginx.conf", &Self::config(&place, address, hub));
        let config = place.join("nginx.conf").display().to_string();
        let log = place.join("error.log").display().to_string();
        let server = Server::start(place, "nginx", &["-c", &config, "-e", &log]);
        Self {
            address,
            ca: made.cert.pem(),
            _server: server.listens(address),
        }
    }

    fn config(place: &Path, address: SocketAddr, hub: SocketAddr) -> String {
        let place = place.display();
        let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let scratch = scratch.map(|kind| format!("{kind}_temp_path {place}/{kind};"));
        let scratch = scratch.join(" ");
        format!(
            "daemon off; master_process off; pid {place}/pid; events {{}}
            http {{
                access_log off; {scratch}
                map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
                server {{
                    listen {address} ssl;
                    ssl_certificate {place}/front.pem; ssl_certificate_key {place}/front.key;
                    ssl_protocols TLSv1.3;
                    location {PREFIX}/ {{
                        proxy_pass https://{hub}/;
                        proxy_http_version 1.1;
                        proxy_ssl_protocols TLSv1.3;
                        proxy_ssl_verify on; proxy_ssl_trusted_certificate {place}/hub.pem;
                        proxy_ssl_name {HUB}; proxy_ssl_server_name on;
                        proxy_set_header Host $http_host;
                        proxy_set_header Upgrade $http_upgrade;
                        proxy_set_header Connection $connection_upgrade;
                        proxy_request_buffering off; proxy_buffering off;
                        proxy_read_timeout 60s; proxy_send_timeout 60s;
                    }}
                }}
            }}"
        )
    }
}

/// Squid, which lets one user through.
struct Squid {
    address: SocketAddr,
    _server: Server,
}

impl Squid {
    fn new() -> Self {
        let (place, address) = (place("squid"), port());
        // Its helpers run as another user.
        std::fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        // `p@ss`, by `openssl passwd -1 -salt linesman`.
        put(&place, "users", "user:$1$linesman$Lb.CuZ3sL3ztf3Y/UPzAN0\n");
        let at = place.display();
        let config = format!(
            "http_port {address}
            auth_param basic program /usr/lib/squid/basic_ncsa_auth {at}/users
            acl known proxy_auth REQUIRED
            http_access allow CONNECT known
            http_access deny all
            cache deny all
            access_log none
            cache_log /dev/null
            pid_filename none
            coredump_dir {at}
            shutdown_lifetime 0 seconds
            "
        );
        put(&place, "squid.conf", &config);
        let config = place.join("squid.conf").display().to_string();
        let server = Server::start(place, "squid", &["-N", "-f", &config]);
        Self {
            address,
            _server: server.listens(address),
        }
    }

    fn config(&self, credentials: &str) -> ProxyConfig {
        ProxyConfig {
            address: self.address.to_string(),
            credentials: Some(Secret::new(credentials.to_owned())),
            bypass: vec![],
        }
    }
}

/// L12: what is no WebSocket passes as well, and finds the hub below the prefix.
#[tokio::test]
async fn plain_requests_pass_nginx() {
    let world = World::behind_nginx().await;
    let ca = world.ca.as_ref().unwrap();
    let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]);
    let client = client.build().unwrap();
    let url = world.hub.reference().urls.remove(0);
    for (path, status) in [
        ("v1/clusters", 401),
        ("clusters/eu1/version", 401),
        ("nowhere", 404),
    ] {
        let answer = client.get(format!("{url}/{path}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let body: serde_json::Value = answer.json().await.unwrap();
        assert!(body.is_object(), "{path}: {body}");
    }
    world.end().await;
}

/// As kubectl, by way of nginx, with these headers beside the token.
async fn asked(
    world: &World,
    token: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let url: http::Uri = world.hub.reference().urls.remove(0).parse().unwrap();
    let host = url.authority().unwrap().as_str();
    let address: SocketAddr = host.parse().unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::from(address.ip());
    let tls = trusting(world.ca.as_ref().unwrap()).connect(name, tcp);
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls.await.unwrap()))
        .await
        .unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    let mut request = Request::get(path)
        .header("host", host)
        .header("authorization", format!("Bearer {token}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let answer = timeout(PATIENCE, sender.send_request(request)).await;
    answer.expect("an answer").unwrap()
}

/// L12: people's clients have the prefix, too. They are served below it, and led nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_served_below_the_prefix() {
    let world = World::behind_nginx().await;
    let mut agent = world.agent();
    agent.up().await;
    let cluster = world.hub.store.cluster(&world.cluster).await;
    let (hub, cluster) = (world.hub.id.clone(), cluster.unwrap().unwrap().id);
    let (streams, state) = (agent.incoming, agent.state);
    let mut serving = JoinSet::new();
    serving.spawn(async move { proxy::behind((&hub, &cluster), streams, state).await });
    let token = proxy::ada(&world.hub).await;
    let root = format!("{PREFIX}/clusters/eu1");

    let pods = asked(&world, &token, &format!("{root}/api/v1/pods"), &[]).await;
    assert_eq!(pods.status(), 200);
    assert_eq!(pods.into_body().collect().await.unwrap().to_bytes(), "{}");

    let moved = format!("{root}/api/v1/namespaces/a/services/s/proxy/moved");
    let moved = asked(&world, &token, &moved, &[]).await;
    let to = moved.headers()["location"].to_str().unwrap().to_owned();
    let there = format!("{root}/api/v1/pods?limit=1&x=%2F");
    assert_eq!((moved.status().as_u16(), &to), (301, &there));
    assert_eq!(asked(&world, &token, &to, &[]).await.status(), 200);

    let exec = format!("{root}/api/v1/namespaces/a/pods/x/exec?command=sh");
    let switch = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    let mut exec = asked(&world, &token, &exec, &switch).await;
    assert_eq!(exec.status(), 101);
    let mut session = TokioIo::new(hyper::upgrade::on(&mut exec).await.unwrap());
    for word in ["hello", "again"] {
        session.write_all(word.as_bytes()).await.unwrap();
        let mut back = vec![0; word.len()];
        let read = timeout(PATIENCE, session.read_exact(&mut back)).await;
        read.expect("an echo").unwrap();
        assert_eq!(back, word.to_uppercase().as_bytes());
    }
    drop(session);
    world.end().await;
}

/// L12: a line through both, below a prefix and idle for longer than nginx waits, is the one that it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_lives_behind_nginx_and_squid() {
    lives_through(IDLE).await;
}

/// L12, for as long as it asks for, with a figure: `make large`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: make large"]
async fn a_line_lives_ten_minutes_of_silence_behind_nginx_and_squid() {
    let minutes = 10;
    lives_through(Duration::from_mins(minutes)).await;
    println!(
        "figure | L12 | lines dialled in {minutes} minutes of silence behind nginx and Squid | 1 | 1, which carried 3 MiB to and fro after it"
    );
}

async fn lives_through(silence: Duration) {
    let (world, squid) = (World::behind_nginx().await, Squid::new());
    let mut agent = world.agent_through(squid.config("user:p@ss"));
    agent.up().await;
    let mut state = agent.state.clone();
    state.mark_unchanged();
    let _echo = echo(agent.incoming);
    let data = pattern(3 << 20, 5);
    for idle in [Duration::ZERO, silence] {
        let changed = timeout(idle, state.changed()).await;
        assert!(changed.is_err(), "the line changed: {:?}", state.borrow());
        let back = round_trip(open(&world.line(1).await).await, data.clone());
        let back = timeout(PATIENCE, back).await;
        assert!(back.expect("an echo") == data);
    }
    assert_eq!(world.line(1).await.facts().epoch, 1, "it was dialled once");
    world.end().await;
}

/// L12: what Squid says of wrong credentials is told, and they are not.
#[tokio::test]
async fn squid_that_wants_other_credentials_is_named() {
    let (world, squid) = (World::behind_nginx().await, Squid::new());
    let mut agent = world.agent_through(squid.config("user:wrong"));
    let said = format!("CONNECT through proxy {}: {UNAUTHORISED}", squid.address);
    assert_eq!(agent.failure().await, said);
    world.end().await;
}
