//! L12: the way out of a cluster is a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use linesman::agent::Joined;
use linesman::agent::caller::{Call, Caller, Https};
use linesman::agent::identity::Identity;
use linesman::agent::link::{LinkState, ProxyConfig};
use linesman::clock;
use linesman::secret::Secret;
use linesman::wire::api::GitRoute;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::world::{Front, PATIENCE, World};
use super::{echo, open, pattern, round_trip};

/// An HTTP proxy that knows CONNECT and one user.
pub(crate) struct Proxy {
    address: String,
    /// Those that it made.
    pub(crate) tunnels: Arc<AtomicU32>,
    _task: JoinSet<()>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Manner {
    /// Towards the user `user` with the password `p@ss`.
    Willing,
    /// 403 to every target.
    Refusing,
    /// Takes the connection and says nothing.
    Stalling,
    /// An endless head.
    Babbling,
}

/// `user:p@ss` in Base64.
const BASIC: &str = "Basic dXNlcjpwQHNz";
/// What is said of a proxy that wants other credentials, and what to do.
pub(super) const UNAUTHORISED: &str = "the proxy wants other credentials (407); give its URL with them to 'linesman cluster readopt' with \
     --https-proxy-file, and apply that YAML";

impl Proxy {
    pub(crate) async fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let tunnels = Arc::new(AtomicU32::new(0));
        let (count, mut task) = (tunnels.clone(), JoinSet::new());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                open.spawn(serve(client, manner, count.clone()));
            }
        });
        Self {
            address,
            tunnels,
            _task: task,
        }
    }

    pub(crate) fn config(&self, credentials: Option<&str>, bypass: &[&str]) -> ProxyConfig {
        ProxyConfig {
            address: self.address.clone(),
            credentials: credentials.map(|text| Secret::new(text.to_owned())),
            bypass: bypass.iter().map(|&rule| rule.to_owned()).collect(),
        }
    }
}

async fn serve(mut client: TcpStream, manner: Manner, tunnels: Arc<AtomicU32>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").unwrap();
    let target = target.split(' ').next().unwrap();
    assert!(head.contains(&format!("\r\nHost: {target}\r\n")), "{head}");
    let authorised = head.contains(&format!("\r\nProxy-Authorization: {BASIC}\r\n"));
    let answer = match manner {
        Manner::Stalling => return std::future::pending().await,
        Manner::Babbling => {
            while client.write_all(b"X-More: of the same\r\n").await.is_ok() {}
            return;
        }
        Manner::Refusing => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        Manner::Willing if !authorised => {
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"
        }
        Manner::Willing => "HTTP/1.0 200 Connection established\r\nVia: test\r\n\r\n",
    };
    client.write_all(answer.as_bytes()).await.unwrap();
    if manner != Manner::Willing || !authorised {
        return;
    }
    tunnels.fetch_add(1, Ordering::Relaxed);
    let mut hub = TcpStream::connect(target).await.unwrap();
    drop(tokio::io::copy_bidirectional(&mut client, &mut hub).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_goes_through_a_proxy_that_asks_for_credentials() {
    let (world, proxy) = (World::new().await, Proxy::new(Manner::Willing).await);
    let mut agent = world.agent_through(proxy.config(Some("user:p@ss"), &["other.example"]));
    agent.up().await;
    let _echo = echo(agent.incoming);
    let data = pattern(3 << 20, 5);
    let back = round_trip(open(&world.line(1).await).await, data.clone());
    assert!(timeout(PATIENCE, back).await.expect("an echo") == data);
    assert_eq!(proxy.tunnels.load(Ordering::Relaxed), 1);
    world.end().await;
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_and_its_credentials_are_not() {
    let world = World::new().await;
    for (manner, credentials, text) in [
        (Manner::Willing, None, UNAUTHORISED),
        (Manner::Willing, Some("user:wrong"), UNAUTHORISED),
        (
            Manner::Refusing,
            Some("user:p@ss"),
            "the proxy answered 'HTTP/1.1 403 Forbidden'",
        ),
        (Manner::Babbling, None, "the answer's head is too long"),
    ] {
        let proxy = Proxy::new(manner).await;
        let mut agent = world.agent_through(proxy.config(credentials, &[]));
        let cause = agent.failure().await;
        assert_eq!(
            cause,
            format!("CONNECT through proxy {}: {text}", proxy.address)
        );
        assert_eq!(proxy.tunnels.load(Ordering::Relaxed), 0);
    }
    world.end().await;
}

#[tokio::test]
async fn no_proxy_is_asked_for_a_host_that_is_named() {
    let (world, proxy) = (World::new().await, Proxy::new(Manner::Refusing).await);
    let mut agent = world.agent_through(proxy.config(None, &["127.0.0.1"]));
    agent.up().await;
    world.end().await;
}

/// The same rules lead the line and what is called over HTTPS.
#[tokio::test]
async fn line_and_https_go_past_the_proxy_by_the_same_rules() {
    let (world, proxy) = (World::new().await, Proxy::new(Manner::Refusing).await);
    let hub = world.hub.reference();
    let port = hub.urls[0].rsplit_once(':').unwrap().1.to_owned();
    for (rule, past) in [
        ("127.0.0.0/8".to_owned(), true),
        ("*".to_owned(), true),
        (format!("127.0.0.1:{port}"), true),
        ("127.0.0.1:1".to_owned(), false),
        ("10.0.0.0/8".to_owned(), false),
        (".0.0.1".to_owned(), false),
    ] {
        let config = proxy.config(None, &[&rule]);
        let https = Https::new(&hub.urls, &hub.ca, Some(&config)).unwrap();
        let called = https.send(&Call::get("/v1/hub"), None).await;
        assert_eq!(called.is_ok(), past, "{rule}: {called:?}");
        let mut agent = world.agent_through(config);
        if past {
            agent.up().await;
        } else {
            let cause = agent.failure().await;
            assert!(
                cause.starts_with("CONNECT through proxy"),
                "{rule}: {cause}"
            );
        }
    }
    world.end().await;
}

#[tokio::test]
async fn https_shows_the_proxy_its_credentials() {
    let (world, proxy) = (World::new().await, Proxy::new(Manner::Willing).await);
    let hub = world.hub.reference();
    for (credentials, through) in [("user:p@ss", true), ("user:wrong", false)] {
        let config = proxy.config(Some(credentials), &[]);
        let https = Https::new(&hub.urls, &hub.ca, Some(&config)).unwrap();
        let called = https.send(&Call::get("/v1/hub"), None).await;
        assert_eq!(called.is_ok(), through, "{called:?}");
    }
    assert_eq!(proxy.tunnels.load(Ordering::Relaxed), 1);
    world.end().await;
}

/// L12: who applies YAML with another proxy does so because the one before goes.
#[tokio::test]
async fn line_and_https_take_another_way_as_soon_as_it_is_known() {
    let world = World::new().await;
    let (closed, open) = (
        Proxy::new(Manner::Refusing).await,
        Proxy::new(Manner::Willing).await,
    );
    let (before, after) = (
        closed.config(None, &[]),
        open.config(Some("user:p@ss"), &[]),
    );
    let (way_out, way) = watch::channel(Some(before.clone()));
    let mut agent = world.agent_by(way);
    agent.failure().await;
    way_out.send_replace(Some(after.clone()));
    agent.up().await;
    assert_eq!(open.tunnels.load(Ordering::Relaxed), 1);

    let mut assignment = world.route(GitRoute::Direct).await;
    assignment.hub = world.hub.reference();
    let joined = |proxy: ProxyConfig| {
        Some(Joined {
            assignment: assignment.clone(),
            proxy: Some(proxy),
        })
    };
    let (joined_out, joined_now) = watch::channel(joined(before));
    let down = LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    };
    let keys = watch::channel(Identity::from_seeds(&[1; 32], &[2; 32])).1;
    let caller = Caller::new(keys, joined_now, watch::channel(down).1);
    let call = Call::get("/v1/hub");
    assert!(caller.call(&call).await.is_err());
    joined_out.send_replace(joined(after));
    assert!(caller.call(&call).await.unwrap().status.is_success());
    assert_eq!(open.tunnels.load(Ordering::Relaxed), 2);
    world.end().await;
}

#[tokio::test]
async fn a_proxy_that_says_nothing_is_given_up() {
    let world = World::new().await;
    let proxy = Proxy::new(Manner::Stalling).await;
    let mut agent = world.agent_through(proxy.config(None, &[]));
    // The clock runs ahead as long as nobody has anything to do.
    tokio::time::pause();
    let cause = timeout(Duration::from_mins(1), agent.failure()).await;
    tokio::time::resume();
    assert_eq!(
        cause.expect("a failure within a minute"),
        "connection, TLS and upgrade took too long"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_balancer_that_ends_tls_may_stand_before_the_hub() {
    let world = World::behind(Front::new()).await;
    let mut agent = world.agent();
    agent.up().await;
    let _echo = echo(agent.incoming);
    let data = pattern(3 << 20, 6);
    let back = round_trip(open(&world.line(1).await).await, data.clone());
    assert!(timeout(PATIENCE, back).await.expect("an echo") == data);
    world.end().await;
}
