//! Replicas that do not answer, or no more.

use rustls::ServerConfig;
use tokio::task::yield_now;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::tunnel::driver::Ahead;
use crate::wire::frame::Frame;

/// L19: one that takes connections and never answers costs those who need it a bounded time, once, and others nothing.
#[tokio::test]
async fn a_silent_replica_is_given_up_and_delays_nobody_else() {
    // Dials have their usual time: the healthy one needs some of it on a busy machine.
    let timing = Timing {
        open: PATIENCE,
        again: Duration::from_mins(10),
        ..Timing::default()
    };
    let a = Replica::new("a", timing).await;
    let mut b = Replica::new("b", Timing::default()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stuck = Pair::new().peer("c", silent.local_addr().unwrap());
    let all = vec![a.peer.clone(), b.peer.clone(), stuck];
    a.peers.know(all.clone());
    b.peers.know(all);
    let _agent = b.agent(7);
    let kind = (Kind::Api, Class::Normal);
    let name = eu1();
    let ask = || a.peers.open("c", (&name, 7), kind, META);
    let asked = async { tokio::join!(ask(), ask(), a.open(&b, 7)) };
    let (first, second, fine) = timeout(PATIENCE, asked).await.expect("it is given up");
    assert!(fine.is_ok());
    for failed in [first, second, ask().await] {
        let Err(PeerError::Dial(text)) = failed else {
            panic!("{failed:?}");
        };
        assert!(text.ends_with("no answer in 3 s"), "{text}");
    }
    // One dial was given up for all three.
    let silent = silent.into_std().unwrap();
    let dials = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(dials, 1);
}

/// A replica that knows one more, `c`; gives where that is dialled, and what it shows.
async fn beside_c(timing: Timing) -> (Replica, TcpListener, ServerConfig) {
    let a = Replica::new("a", timing).await;
    let (pair, listener) = (Pair::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let known = Known::default();
    known.set(vec![a.peer.clone()]);
    let config = pair.credential().server(&known).unwrap();
    let c = pair.peer("c", listener.local_addr().unwrap());
    a.peers.know(vec![c]);
    (a, listener, config)
}

/// Takes the next line, up to what a peer says first.
async fn greet(listener: TcpListener, config: ServerConfig) -> Socket<TlsStream<Ahead<TcpStream>>> {
    let (tcp, _) = listener.accept().await.unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let tls = acceptor.accept(Ahead::new(tcp)).await.unwrap();
    let mut socket = Socket::new(tls, Role::Hub, Bytes::new());
    let welcome = Frame::Welcome(Bytes::from_static(b"{}"));
    driver::send(&mut socket, &welcome).await.unwrap();
    socket
}

/// L11, L19: what breaks before the owner has said a word is the line to it. Of the line of the agent nothing is known by that.
#[tokio::test]
async fn a_line_that_breaks_while_a_stream_is_opened_is_not_the_agents() {
    let (mut a, listener, config) = beside_c(Timing::default()).await;
    let breaks = CancellationToken::new();
    let broken = breaks.clone();
    a.tasks.spawn(async move {
        let _socket = greet(listener, config).await;
        broken.cancelled().await;
    });
    let line = timeout(PATIENCE, a.peers.line("c")).await.unwrap().unwrap();
    let (kind, name) = ((Kind::Api, Class::Normal), eu1());
    let asking = a.peers.open("c", (&name, 7), kind, META);
    let breaking = async {
        while line.facts().opened == 0 {
            yield_now().await;
        }
        breaks.cancel();
    };
    let both = async { tokio::join!(asking, breaking).0 };
    let asked = timeout(PATIENCE, both).await.expect("it is told");
    let expected = PeerError::Dial("the line to it was lost".to_owned());
    assert_eq!(asked.unwrap_err(), expected);
}

/// L19: one that answered once and then stands still.
#[tokio::test]
async fn a_replica_that_stands_still_is_given_up() {
    let timing = Timing {
        open: Duration::from_millis(300),
        again: Duration::from_mins(1),
        ..Timing::default()
    };
    let (mut a, listener, config) = beside_c(timing).await;
    a.tasks.spawn(async move {
        let _socket = greet(listener, config).await;
        std::future::pending::<()>().await;
    });
    let kind = (Kind::Api, Class::Normal);
    let name = eu1();
    let line = timeout(PATIENCE, a.peers.line("c")).await.unwrap().unwrap();
    let ask = || timeout(PATIENCE, a.peers.open("c", (&name, 7), kind, META));
    assert_eq!(ask().await.unwrap().unwrap_err(), PeerError::Late);
    // It is not waited for again: nothing more is opened on its line.
    let opened = line.facts().opened;
    assert_eq!(ask().await.unwrap().unwrap_err(), PeerError::Late);
    assert_eq!(line.facts().opened, opened);
}
