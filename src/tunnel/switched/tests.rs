use std::net::{TcpListener, TcpStream};

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

mod ahead;

const BUFFER: usize = 64;

/// An end that is read on, and takes nothing: closed by its other side, which had said more than was read yet.
struct Deaf(DuplexStream);

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
    }
}

fn text() -> Vec<u8> {
    (0..5_000_u32).flat_map(u32::to_be_bytes).collect()
}

#[tokio::test]
async fn both_ways_are_carried_and_each_end_by_itself() {
    let (mut user, mut near) = duplex(100);
    let (mut far, mut server) = duplex(100);
    let carried = async { carry(&mut near, &mut far, BUFFER).await };
    let (asking, answering) = (text(), text());
    let talk = async {
        let ask = async {
            user.write_all(&asking).await.unwrap();
            user.shutdown().await.unwrap();
            let mut got = Vec::new();
            user.read_to_end(&mut got).await.unwrap();
            got
        };
        let answer = async {
            // The whole question first: a half that has ended leaves the other.
            let mut got = Vec::new();
            server.read_to_end(&mut got).await.unwrap();
            server.write_all(&answering).await.unwrap();
            server.shutdown().await.unwrap();
            got
        };
        tokio::join!(ask, answer)
    };
    let (carried, (got, asked)) = tokio::join!(carried, talk);
    assert_eq!(carried.unwrap(), (20_000, 20_000));
    assert_eq!((got, asked), (text(), text()));
}

/// L3: a `kubectl cp` whose ping came when the API server had closed ended in an unexpected EOF.
#[tokio::test]
async fn what_the_server_said_before_it_closed_arrives_whole_whatever_the_user_still_sends() {
    let (mut user, mut near) = duplex(100);
    let (far, mut server) = duplex(1 << 20);
    server.write_all(&text()).await.unwrap();
    drop(server);
    user.write_all(b"ping").await.unwrap();
    let mut far = Deaf(far);
    let carried = carry(&mut near, &mut far, BUFFER);
    let reading = async {
        let mut got = Vec::new();
        user.read_to_end(&mut got).await.unwrap();
        // What it sends now goes nowhere, and it ends.
        user.write_all(b"ping").await.unwrap();
        drop(user);
        got
    };
    let (carried, got) = tokio::join!(carried, reading);
    assert_eq!((carried.unwrap(), got), ((0, 20_000), text()));
}

#[tokio::test]
async fn a_user_who_is_gone_ends_it_though_the_server_says_on() {
    let (user, near) = duplex(100);
    let (mut far, mut server) = duplex(1 << 20);
    server.write_all(&text()).await.unwrap();
    let _waits = user;
    let error = carry(&mut Deaf(near), &mut far, BUFFER).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

/// What somebody waits for is not held back.
#[tokio::test]
async fn written_bytes_are_flushed_while_the_source_is_silent() {
    let (mut user, mut near) = duplex(100);
    let (far, mut server) = duplex(100);
    let mut far = tokio::io::BufStream::new(far);
    let carried = async { carry(&mut near, &mut far, BUFFER).await };
    let talk = async {
        user.write_all(b"who").await.unwrap();
        let mut got = [0; 3];
        server.read_exact(&mut got).await.unwrap();
        drop((user, server));
        got
    };
    let (carried, got) = tokio::join!(carried, talk);
    assert_eq!((carried.unwrap(), &got), ((3, 0), b"who"));
}

/// Two ends of a connection over loopback.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn of_tokio(socket: TcpStream) -> tokio::net::TcpStream {
    socket.set_nonblocking(true).unwrap();
    tokio::net::TcpStream::from_std(socket).unwrap()
}

/// L4: of a user who has not read everything yet, the hub's kernel has the rest; closed with his ping unread it resets.
#[tokio::test]
async fn a_user_has_all_before_his_connection_is_closed() {
    let (user, near) = connection();
    // So that little is in the user's kernel, and much in the hub's.
    SockRef::from(&user).set_recv_buffer_size(4 << 10).unwrap();
    SockRef::from(&near).set_send_buffer_size(1 << 20).unwrap();
    let said = text().repeat(3);
    let (far, mut server) = duplex(said.len());
    server.write_all(&said).await.unwrap();
    drop(server);
    let (mut user, mut near) = (of_tokio(user), of_tokio(near));
    user.write_all(b"ping").await.unwrap();
    let (to, from) = carry(&mut near, &mut Deaf(far), BUFFER).await.unwrap();
    assert_eq!((to, from), (0, 60_000));
    user.write_all(b"ping").await.unwrap();
    let closing = async {
        linger(&mut near).await;
        drop(near);
    };
    let reading = async {
        let mut got = Vec::new();
        let read = user.read_to_end(&mut got).await;
        drop(user);
        (read.map_err(|error| error.to_string()), got)
    };
    let ((), (read, got)) = tokio::join!(closing, reading);
    assert_eq!(read, Ok(60_000));
    assert!(got == said);
}
