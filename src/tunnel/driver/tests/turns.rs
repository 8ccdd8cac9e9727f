//! A task whose stream is always ready gives way to the others on its thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::yield_now;

use super::*;

/// Operations that a task may have in a row, by tokio's budget (`tokio::task::coop`).
const IN_A_ROW: usize = 128;
/// Less than a window has room for, so that nothing but the budget can end a turn.
const BYTES: usize = 8_192;

/// The most that `done` grew by between two turns of this task, until it is `BYTES`.
async fn longest_turn(done: &AtomicUsize) -> usize {
    let (mut before, mut longest) = (0, 0);
    while before < BYTES {
        yield_now().await;
        let now = done.load(Ordering::Relaxed);
        longest = longest.max(now - before);
        before = now;
    }
    longest
}

fn joined() -> Pair {
    Pair::new(|one, other| balancer(one, other, Duration::from_mins(1)))
}

/// L24: what is written a byte at a time keeps no other stream waiting.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_written_without_end_gives_way() {
    let mut pair = joined();
    let (mut stream, mut peer) = pair.stream().await;
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    pair.tasks.spawn(async move {
        for _ in 0..BYTES {
            stream.write_all(b"x").await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        stream.shutdown().await.unwrap();
    });
    let longest = longest_turn(&done).await;
    assert!(longest <= IN_A_ROW, "{longest} in a row");
    let mut read = Vec::new();
    peer.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, vec![b'x'; BYTES]);
}

/// L24: what is read a byte at a time neither.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_without_end_gives_way() {
    let mut pair = joined();
    let (mut stream, mut peer) = pair.stream().await;
    stream.write_all(&[b'x'; BYTES]).await.unwrap();
    stream.shutdown().await.unwrap();
    // This clock moves when no task has anything left to do: then all of it is there.
    sleep(Duration::from_millis(1)).await;
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    pair.tasks.spawn(async move {
        while peer.read_u8().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let longest = longest_turn(&done).await;
    assert!(longest <= IN_A_ROW, "{longest} in a row");
}
