//! L36, L37: a switch of protocol that is asked for behind other requests, before these are answered. The answers to those before
//! are none to it, whatever they look like.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::hostile::{PODS, codes, filled, told};
use super::world::{PATIENCE, World};

const BEFORE: &str = "GET @/api/v1/pods HTTP/1.1\r\nHost: h\r\n$\r\n\r\n";
const SWITCH: &str = "GET @/api/v1/namespaces/a/pods/#/exec?command=sh HTTP/1.1\r\nHost: h\r\n$\r\n\
    Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// What came back up to the piece with this in it.
async fn until_said(tls: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut all = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&all).contains(end) {
            let mut piece = [0; 4096];
            match tls.read(&mut piece).await {
                Ok(n @ 1..) => all.extend_from_slice(&piece[..n]),
                _ => break,
            }
        }
    };
    let ended = timeout(PATIENCE, read).await.is_ok();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(ended && all.contains(end), "{all}");
    all
}

/// L37: the session gets what its user types and nothing else, be it typed before the switch was granted or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_behind_other_requests_is_granted_by_its_own_answer() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let switch = SWITCH.replace('#', "x");
    for before in [0, 1, 3] {
        for early in [true, false] {
            let mut tls = world.connect(&[]).await;
            let asked = format!("{}{switch}", BEFORE.repeat(before));
            let mut asked = filled(&world, &asked);
            if early {
                asked.extend(b"typed");
            }
            tls.write_all(&asked).await.unwrap();
            if !early {
                until_said(&mut tls, "101 Switching Protocols").await;
                tls.write_all(b"typed").await.unwrap();
            }
            let said = until_said(&mut tls, "TYPED").await;
            assert!(!said.contains("REFUSED"), "{before} before: {said}");
            tls.write_all(b"\r\n\r\nmore").await.unwrap();
            assert_eq!(until_said(&mut tls, "MORE").await, "\r\n\r\nMORE");
        }
    }
}

/// L37: what was sent behind one that is not granted goes nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_behind_a_refused_switch_goes_upstream_where_others_were_asked_before() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for before in [1, 3] {
        let seen = server.seen().len();
        let switch = SWITCH.replace('#', "none");
        let asked = format!("{}{switch}{PODS}", BEFORE.repeat(before));
        let told = told(&world, &filled(&world, &asked)).await;
        let codes = codes(&told);
        assert_eq!(codes.last(), Some(&"404"), "{told}");
        assert_eq!(codes.len(), before + 1, "{told}");
        assert_eq!(server.seen().len(), seen + before + 1, "{told}");
    }
}
