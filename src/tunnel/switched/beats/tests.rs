use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::tunnel::switched::carry;

const BUFFER: usize = 64;
const PIPE: usize = 100;

/// The end of a user whose process is gone: what he sent is there to be read, and his kernel answers what is sent to him with RST.
struct Gone {
    sent: DuplexStream,
    was_reset: bool,
}

impl AsyncRead for Gone {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sent).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gone {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if std::mem::replace(&mut self.was_reset, true) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// L8: a user was killed while his command read nothing, and his session stayed until the command ended by itself; with more on its
/// way than anybody takes, or with his end behind all that he had to say.
#[tokio::test(start_paused = true)]
async fn a_user_who_is_gone_is_found_by_the_second_beat_though_nobody_reads_him() {
    for dialect in [Dialect::WebSocket, Dialect::Spdy] {
        for (size, ended) in [(10 * PIPE, false), (10 * PIPE, true), (PIPE / 2, true)] {
            let (mut user, sent) = duplex(10 * PIPE);
            let (far, _server) = duplex(PIPE);
            user.write_all(&vec![7; size]).await.unwrap();
            if ended {
                user.shutdown().await.unwrap();
            }
            let was_reset = false;
            let mut near = Gone { sent, was_reset };
            let mut far = Beating::new(far, dialect);
            let began = Instant::now();
            let error = carry(&mut near, &mut far, BUFFER).await.unwrap_err();
            assert_eq!(
                (error.kind(), began.elapsed().as_secs()),
                (io::ErrorKind::ConnectionReset, 6),
                "{dialect:?} {size} {ended}"
            );
        }
    }
}

/// What a user sends, who is there to the end.
fn sent() -> Vec<u8> {
    (0..5_000_u32).flat_map(u32::to_be_bytes).collect()
}

async fn takes_all(server: &mut DuplexStream) {
    let mut got = vec![0; sent().len()];
    server.read_exact(&mut got).await.unwrap();
    assert!(got == sent());
}

/// What he hears of a server that does this.
async fn heard(dialect: Dialect, does: impl AsyncFnOnce(&mut DuplexStream)) -> Vec<u8> {
    let (user, mut near) = duplex(PIPE);
    let (far, mut server) = duplex(PIPE);
    let mut far = Beating::new(far, dialect);
    let (mut hears, mut says) = tokio::io::split(user);
    let saying = async {
        says.write_all(&sent()).await.unwrap();
        says.shutdown().await.unwrap();
    };
    let hearing = async {
        let mut got = Vec::new();
        hears.read_to_end(&mut got).await.unwrap();
        got
    };
    let serving = async {
        does(&mut server).await;
        drop(server);
    };
    let carrying = carry(&mut near, &mut far, BUFFER);
    let (carried, (), (), got) = tokio::join!(carrying, saying, serving, hearing);
    assert_eq!(carried.unwrap().0, 20_000);
    got
}

#[tokio::test(start_paused = true)]
async fn a_user_who_is_there_hears_of_a_server_that_takes_nothing_and_loses_nothing() {
    let answer = [0x82, 2, 1, 7];
    let serves = async |server: &mut DuplexStream| {
        sleep(Duration::from_secs(10)).await;
        takes_all(server).await;
        server.write_all(&answer).await.unwrap();
    };
    let got = heard(Dialect::WebSocket, serves).await;
    assert_eq!(got, [&PONG[..], &PONG, &PONG, &answer].concat());
    let got = heard(Dialect::Spdy, async |server: &mut DuplexStream| {
        sleep(Duration::from_secs(4)).await;
        takes_all(server).await;
    });
    assert_eq!(got.await, SETTINGS);
    let got = heard(Dialect::Other, async |server: &mut DuplexStream| {
        sleep(Duration::from_mins(10)).await;
        takes_all(server).await;
    });
    assert_eq!(got.await, b"");
}

/// A client that ends only its side of the connection waits for the rest.
#[tokio::test(start_paused = true)]
async fn a_user_who_has_said_all_hears_of_a_server_that_does_not_end() {
    let got = heard(Dialect::WebSocket, async |server: &mut DuplexStream| {
        takes_all(server).await;
        sleep(Duration::from_secs(7)).await;
    });
    assert_eq!(got.await, [PONG, PONG].concat());
}

#[tokio::test(start_paused = true)]
async fn no_beat_goes_into_the_middle_of_a_frame() {
    let got = heard(Dialect::WebSocket, async |server: &mut DuplexStream| {
        server.write_all(&[0x82, 5, 1, 2]).await.unwrap();
        sleep(Duration::from_mins(1)).await;
        server.write_all(&[3, 4, 5]).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        takes_all(server).await;
    });
    assert_eq!(got.await, [&[0x82, 5, 1, 2, 3, 4, 5][..], &PONG].concat());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_is_none_that_takes_nothing() {
    let got = heard(Dialect::WebSocket, async |server: &mut DuplexStream| {
        let mut got = vec![0; sent().len()];
        let (slowly, rest) = got.split_at_mut(100);
        for byte in slowly {
            sleep(Duration::from_secs(2)).await;
            *byte = server.read_u8().await.unwrap();
        }
        server.read_exact(rest).await.unwrap();
        assert!(got == sent());
    });
    assert_eq!(got.await, b"");
}

#[test]
fn a_beat_fits_between_two_frames_alone() {
    use Dialect::{Other, Spdy, WebSocket};

    // With where among the bytes that is.
    let rows: [(Dialect, &[u8], &[usize]); 13] = [
        (WebSocket, &[0x82, 0, 0x01, 2, 7, 7, 0x89, 0], &[0, 2, 6, 8]),
        (WebSocket, &[0x82, 126, 0, 3, 1, 1, 1], &[0, 7]),
        (WebSocket, &[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 9], &[0, 11]),
        // Compressed, and masked.
        (WebSocket, &[0xc1, 1, 9], &[0, 3]),
        (WebSocket, &[0x82, 0x81, 1, 2, 3, 4, 9], &[0, 7]),
        (WebSocket, &[0x83, 0, 0x82, 0], &[0]),
        // Goodbye.
        (WebSocket, &[0x82, 0, 0x88, 2, 3, 0xe8], &[0, 2]),
        (Spdy, &SETTINGS, &[0, 12]),
        (Spdy, &[0, 0, 0, 1, 0, 0, 0, 1, 9], &[0, 9]),
        (Spdy, &[0, 0, 0, 1, 1, 0, 0, 0], &[0, 8]),
        (Spdy, &[0, 0, 0, 1, 0, 1, 0, 0], &[0]),
        (Spdy, &[0x80, 2, 0, 4, 0, 0, 0, 0, 0], &[0]),
        (Other, &[0x82, 0], &[]),
    ];
    for (dialect, bytes, expected) in rows {
        let mut frames = Frames::new(dialect);
        let mut found = Vec::new();
        for at in 0..=bytes.len() {
            if frames.is_between() {
                found.push(at);
            }
            frames.see(bytes.get(at..=at).unwrap_or_default());
        }
        assert_eq!(found, expected, "{dialect:?} {bytes:?}");
        let mut at_once = Frames::new(dialect);
        at_once.see(bytes);
        assert_eq!(at_once.is_between(), frames.is_between(), "{bytes:?}");
    }
}
