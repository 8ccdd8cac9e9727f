//! L46: sockets that say nothing at all, as many as the hub takes and more.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::apiserver::ApiServer;
use super::super::world::World;
use super::line::UPGRADE;
use super::{left_with, make_room, served};

/// As many as the hub takes before they say who they are.
pub(super) const SILENT: usize = 1_024;
/// TLS handshakes that a client has under way.
const AT_ONCE: usize = 32;

/// Connections with TLS that say this and no more, with the code of the answer where there is one.
pub(super) async fn connected(
    (connector, to): (TlsConnector, SocketAddr),
    count: usize,
    said: &'static str,
) -> Vec<(TlsStream<TcpStream>, Option<[u8; 12]>)> {
    let mut dialling = JoinSet::new();
    for n in 0..AT_ONCE {
        let connector = connector.clone();
        dialling.spawn(async move {
            let mut sockets = Vec::new();
            for _ in (n..count).step_by(AT_ONCE) {
                let tcp = TcpStream::connect(to).await.unwrap();
                let name = "localhost".try_into().unwrap();
                let mut tls = connector.connect(name, tcp).await.unwrap();
                let mut code = None;
                if !said.is_empty() {
                    tls.write_all(said.as_bytes()).await.unwrap();
                    tls.read_exact(code.insert([0; 12])).await.unwrap();
                }
                sockets.push((tls, code));
            }
            sockets
        });
    }
    dialling.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_sockets_keep_no_agent_out() {
    make_room();
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let mut plain = Vec::new();
    for _ in 0..SILENT {
        plain.push(TcpStream::connect(world.https).await.unwrap());
    }
    let hub = || (world.connector(&[]), world.https);
    let secret = connected(hub(), SILENT / 4, "").await;
    let lines = connected(hub(), SILENT, UPGRADE).await;
    let codes = lines.iter().filter_map(|(_, code)| code.as_ref());
    let upgraded = codes.filter(|code| code.ends_with(b" 101")).count();
    assert!(upgraded > SILENT * 9 / 10, "{upgraded} of {SILENT}");
    let held = world.hub.metrics.connections().get();
    let began = Instant::now();
    let _agent = world.agent(&server).await;
    served(&world).await;
    let took = began.elapsed();
    eprintln!("{held} connections; the agent is there after {took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    // All of them have been let go by then, or will be.
    left_with(&world, 1).await;
    drop((plain, secret, lines));
}
