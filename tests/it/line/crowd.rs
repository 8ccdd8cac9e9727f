//! Many agents that connect at once.

use std::time::{Duration, Instant};

use linesman::tunnel::driver::{self, Socket};
use linesman::tunnel::handshake::{self, Agent};
use linesman::wire::api::AgentBuild;
use linesman::wire::frame::{Code, Frame, Refusal};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::later::upgraded;
use super::world::{PATIENCE, World};
use super::{echo, open, pattern, round_trip};

/// As the protocol says.
const MOST: usize = 256;

/// What the hub answers to the cluster's HELLO.
async fn answered(world: &World) -> Frame {
    let reference = world.hub.reference();
    let mut socket: Socket<TlsStream<TcpStream>> = upgraded(&reference).await;
    let answer = async {
        let Frame::Challenge(challenge) = driver::receive(&mut socket).await.unwrap() else {
            panic!("no CHALLENGE");
        };
        let agent = Agent {
            cluster: &world.cluster,
            identity: &world.identity,
            hub: &reference.id,
            host: reference.urls[0].strip_prefix("https://").unwrap(),
            nonce: [3; 32],
            instance: "by hand",
            resumes: None,
            cap: None,
            build: &AgentBuild::default(),
            keyset: &reference.keyset,
        };
        let hello = handshake::hello(&challenge, &agent).unwrap();
        driver::send(&mut socket, &Frame::Hello(hello))
            .await
            .unwrap();
        driver::receive(&mut socket).await.unwrap()
    };
    timeout(PATIENCE, answer).await.expect("the hub answers")
}

/// L46: while as many handshakes are checked as may be, the next agent is told to come again in 2 s; the lines that are up go
/// on, and whoever comes once one of the checks is over gets its line. An agent comes again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_handshake_too_many_is_told_when_to_come_again() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    let mut turns = Vec::new();
    while let Some(turn) = world.hub.tunnels.turn() {
        turns.push(turn);
    }
    assert_eq!(turns.len(), MOST);
    let busy = Frame::Refuse(Refusal {
        code: Code::Busy,
        retry_after_ms: 2000,
        text: "many agents connect".to_owned(),
    });
    assert_eq!(answered(&world).await, busy);
    let _echo = echo(agent.incoming);
    let data = pattern(1 << 16, 1);
    assert_eq!(round_trip(open(&line).await, data.clone()).await, data);

    let (mut other, began) = (world.agent(), Instant::now());
    let cause = other.failure().await;
    assert!(cause.contains("many agents connect"), "{cause}");
    drop(turns.pop());
    other.up().await;
    assert!(began.elapsed() >= Duration::from_secs(2), "it was told 2 s");
    drop(turns);
    world.end().await;
}
