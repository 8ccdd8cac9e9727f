//! A peer that does not end what it was asked to stop.

use super::*;
use crate::wire::frame::Open;

/// One message of a hub: a WebSocket's binary one, not masked.
fn message(frame: &Frame) -> Vec<u8> {
    let mut frames = BytesMut::new();
    frame::encode(frame, &mut frames);
    let len = u8::try_from(frames.len()).unwrap();
    assert!(len < 126, "the short form");
    [&[0x82, len][..], &frames].concat()
}

/// It also gives no credit for the answer. Before, whoever wrote that waited for as long as the process ran, and thousands of them
/// took all that the agent serves at once.
#[tokio::test(start_paused = true)]
async fn who_writes_to_a_peer_that_neither_reads_nor_ends_a_stopped_stream_is_let_go() {
    let (io, mut peer) = duplex(16 << 10);
    let (streams, mut incoming) = mpsc::channel(1);
    let (_line, run) = line(
        Socket::new(io, Role::Agent, Bytes::new()),
        Config::new(Role::Agent),
        identity(),
        streams,
        CancellationToken::new(),
    );
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(run.await) });
    let open = Frame::Open(Open {
        id: 2,
        kind: Kind::Api,
        class: Class::Normal,
        window: 0,
        meta: Bytes::new(),
    });
    peer.write_all(&message(&open)).await.unwrap();
    let mut stream = incoming.recv().await.unwrap().stream;
    let cancelled = stream.cancelled();
    stream.stop(Code::None);
    // The line lives on.
    tasks.spawn(async move {
        let ping = message(&Frame::Ping(1));
        while peer.write_all(&ping).await.is_ok() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    let write = stream.write_all(b"413");
    let written = timeout(Duration::from_secs(31), write).await;
    let error = written.expect("it waits for ever").unwrap_err();
    let told = error.to_string();
    assert!(told.contains("no end within 30 s after STOP"), "{told}");
    assert!(cancelled.is_cancelled());
}
