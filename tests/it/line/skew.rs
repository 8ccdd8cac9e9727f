//! L17: an agent whose clock is not the hub's. Over a line nobody needs one; what it says over HTTPS it signs with a time, and the
//! hub says when that is not its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linesman::agent::Joined;
use linesman::agent::caller::{Call, Caller};
use linesman::agent::identity::Identity;
use linesman::agent::link::LinkState;
use linesman::clock;
use linesman::wire::api::{GitRoute, HubRef};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::world::{World, trusting};

/// How late a call may be, on a busy machine.
const SLOW: i64 = 20;

/// What agents said, as it arrived.
type Said = Arc<Mutex<String>>;

/// Ends TLS before the hub, and keeps what passes.
struct Front {
    hub: HubRef,
    said: Said,
    _task: JoinSet<()>,
}

impl Front {
    async fn before(world: &World) -> Self {
        let hub = world.hub.reference();
        let to = hub.urls[0].strip_prefix("https://").unwrap();
        let to: SocketAddr = to.parse().unwrap();
        let way = (to, trusting(&hub.ca));
        let (acceptor, ca) = crate::tls::loopback();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = vec![format!("https://{}", listener.local_addr().unwrap())];
        let (said, mut task) = (Said::default(), JoinSet::new());
        let kept = said.clone();
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                open.spawn(pass(client, acceptor.clone(), way.clone(), kept.clone()));
            }
        });
        Self {
            hub: HubRef { urls, ca, ..hub },
            said,
            _task: task,
        }
    }

    /// The times that were signed since this was asked last.
    fn times(&self) -> Vec<i64> {
        let said = std::mem::take(&mut *self.said.lock().unwrap());
        let signed = said.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("linesman-signature")
                .then_some(value)
        });
        let time = |value: &str| {
            let time = value.split(';').find_map(|part| part.strip_prefix("t="));
            time.unwrap().parse::<i64>().unwrap()
        };
        signed.map(time).collect()
    }
}

async fn pass(
    client: TcpStream,
    acceptor: TlsAcceptor,
    (to, connector): (SocketAddr, TlsConnector),
    said: Said,
) {
    let client = acceptor.accept(client).await.unwrap();
    let hub = TcpStream::connect(to).await.unwrap();
    let hub = connector.connect(ServerName::from(to.ip()), hub);
    let (mut asks, mut told) = split(client);
    let (mut answers, mut asked) = split(hub.await.unwrap());
    let there = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(len @ 1..) = asks.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..len]);
            said.lock().unwrap().push_str(&text);
            asked.write_all(&buffer[..len]).await.unwrap();
            asked.flush().await.unwrap();
        }
    };
    tokio::select! {
        () = there => {}
        _ = tokio::io::copy(&mut answers, &mut told) => {}
    }
}

/// L17. Seconds that the agent's clock is ahead of the hub's, and how far the times were ahead that it signed its next call with. The
/// hub takes two minutes, and tells its time where it is more; the call behind that needs to be told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_signed_by_a_clock_that_is_far_off_is_signed_once_more() {
    let world = World::new().await;
    let front = Front::before(&world).await;
    let mut assignment = world.route(GitRoute::Direct).await;
    assignment.hub = front.hub.clone();
    let joined = Joined {
        assignment,
        proxy: None,
    };
    let keys = Identity {
        identity: world.identity.clone(),
        ..Identity::from_seeds(&[1; 32], &[2; 32])
    };
    let down = LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    };
    let caller = Caller::new(
        watch::channel(keys).1,
        watch::channel(Some(joined)).1,
        watch::channel(down).1,
    );
    for (ahead, first) in [
        (0, vec![0]),
        (90, vec![90]),
        (-90, vec![-90]),
        (600, vec![600, 0]),
        (-600, vec![-600, 0]),
        // Set anew while the agent runs.
        (600, vec![600, 0]),
    ] {
        // What it takes for the hub's time is its own.
        caller.set_hub_time(clock::now().unix_timestamp() + ahead);
        let next = &first[first.len() - 1..];
        for expected in [&first[..], next] {
            let now = clock::now().unix_timestamp();
            let asked = caller.cluster(|root| Ok(Call::get(format!("{root}/assignment"))));
            let answer = asked.await.unwrap();
            assert_eq!(answer.status, 200, "{ahead} s: {}", answer.refusal());
            let times = front.times();
            let off: Vec<i64> = times.iter().map(|time| time - now).collect();
            let as_expected = off.len() == expected.len()
                && (off.iter().zip(expected))
                    .all(|(off, ahead)| (-2..SLOW).contains(&(off - ahead)));
            assert!(
                as_expected,
                "{ahead} s: {off:?} instead of {expected:?} ahead"
            );
        }
    }
    world.end().await;
}
