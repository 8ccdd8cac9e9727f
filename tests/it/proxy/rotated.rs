//! L17: what the line goes by is replaced while people work through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::world::{PATIENCE, get};

const PEOPLE: usize = 8;
const TOKENS: u64 = 12;
/// Requests between two of them.
const BETWEEN: usize = 64;

/// One request after the other until `over`; how many went well, and what became of the others.
async fn ask(pair: Arc<Pair>, over: Arc<AtomicBool>) -> (usize, Vec<String>) {
    let (mut good, mut bad) = (0, Vec::new());
    while !over.load(Ordering::Relaxed) {
        let answer = pair.send(get("/api/v1/pods")).await;
        let answer = answer.expect("an answer");
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("all of it");
        if status == 200 {
            good += 1;
        } else {
            bad.push(format!("{status} {:?}", body.to_bytes()));
        }
    }
    (good, bad)
}

/// L17: the API server takes each token for a while and then no more, and the hub's clock is ten minutes off, or right: no
/// request fails, and nobody asks for another line.
#[tokio::test]
async fn requests_go_on_over_every_change_of_the_lines_token_at_any_hubs_time() {
    for lie in [0, -600, 600] {
        let server = ApiServer::start().await;
        let pair = Arc::new(Pair::new(&server));
        pair.lie(lie);
        let over = Arc::default();
        let mut people = JoinSet::new();
        for _ in 0..PEOPLE {
            people.spawn(ask(pair.clone(), Arc::clone(&over)));
        }
        for serial in 1..=TOKENS {
            let suffix = match serial {
                1 => String::new(),
                n => format!("-{n}"),
            };
            server.accept_only(&format!("Bearer line-token{suffix}"));
            let more = server.asked("/api/v1/pods") + BETWEEN;
            server.asked_for("/api/v1/pods", more).await;
        }
        over.store(true, Ordering::Relaxed);
        let ended = timeout(PATIENCE, people.join_all()).await;
        let (good, bad): (Vec<usize>, Vec<_>) = ended.expect("all end").into_iter().unzip();
        assert_eq!(bad.concat(), Vec::<String>::new(), "{lie} s");
        assert!(good.iter().all(|count| *count > 0), "{good:?}");
        let tokens = server.seen();
        let mut tokens: Vec<_> = tokens
            .iter()
            .map(|s| s.headers["authorization"].clone())
            .collect();
        tokens.dedup();
        assert!(
            tokens.len() >= usize::try_from(TOKENS).unwrap(),
            "{tokens:?}"
        );
        assert_eq!(pair.set_apart(0), 0, "{lie} s: another line was asked for");
    }
}
