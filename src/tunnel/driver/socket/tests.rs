use super::*;

/// L40: a person may look away from what is shown.
#[tokio::test]
async fn only_a_line_gives_up_a_peer_that_takes_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for (set, patience) in [
        (tune as fn(&TcpStream), Some(PATIENCE)),
        (tune_for_anybody, None),
    ] {
        let socket = TcpStream::connect(address).await.unwrap();
        set(&socket);
        let options = SockRef::from(&socket);
        let given = options.tcp_user_timeout().unwrap();
        assert_eq!(given.filter(|given| !given.is_zero()), patience);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
        assert_eq!(options.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT);
    }
}

#[tokio::test]
async fn a_line_has_bbr_where_anybody_may() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap());
    let socket = socket.await.unwrap();
    let named = |socket: &TcpStream| {
        let name = SockRef::from(socket).tcp_congestion().unwrap();
        String::from_utf8(name)
            .unwrap()
            .trim_end_matches('\0')
            .to_owned()
    };
    // Every system has it; what this one takes by itself may be BBR.
    let usual = "reno";
    SockRef::from(&socket)
        .set_tcp_congestion(usual.as_bytes())
        .unwrap();
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = allowed.unwrap_or_default();
    let bbr = allowed.split_whitespace().any(|name| name == "bbr");
    // What a person's connection has is the system's own.
    tune_for_anybody(&socket);
    assert_eq!(named(&socket), usual);
    tune(&socket);
    assert_eq!(named(&socket), if bbr { "bbr" } else { usual });
}

/// A connection that takes so many bytes at a time, over the borders of parts, and gives none.
struct Sips {
    len: usize,
    taken: Vec<u8>,
    /// Asked to flush, it needs so many tries.
    flushes: usize,
}

impl AsyncRead for Sips {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Sips {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = bufs.iter().flat_map(|part| part.to_vec()).collect();
        let len = self.len.min(all.len());
        self.taken.extend_from_slice(&all[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.flushes.checked_sub(1) {
            Some(left) => {
                self.flushes = left;
                Poll::Pending
            }
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn messages_put_together_arrive_whole_however_little_is_taken_at_a_time() {
    let long = vec![0x5a; 300];
    let messages = [&b"a"[..], &long, b"", &long[..130], b"last"];
    for (near, far) in [(Role::Agent, Role::Hub), (Role::Hub, Role::Agent)] {
        for len in (1..40).chain([299, 300, 1000]) {
            let sips = Sips {
                len,
                taken: Vec::new(),
                flushes: 0,
            };
            let mut socket = Socket::new(sips, near, Bytes::new());
            for message in messages {
                let put = socket.put(|out| out.extend_from_slice(message));
                assert_eq!(put, message.len());
            }
            poll_fn(|cx| socket.poll_send(cx)).await.unwrap();
            assert!(!socket.is_sending());
            let mut reader = Reader::new(far);
            let mut taken = &socket.io.taken[..];
            let mut received = Vec::new();
            loop {
                while let Some(next) = reader.poll().unwrap() {
                    received.push(next);
                }
                let space = reader.space();
                let len = space.len().min(taken.len());
                if len == 0 {
                    break;
                }
                space[..len].copy_from_slice(&taken[..len]);
                reader.filled(len);
                taken = &taken[len..];
            }
            let put = messages.iter().filter(|message| !message.is_empty());
            let put: Vec<_> = put
                .map(|message| Received::Message(Bytes::copy_from_slice(message)))
                .collect();
            assert_eq!(received, put, "{len} at a time");
        }
    }
}

/// TLS takes a message as a whole and may keep a part of it: only its flush says that all has left.
#[test]
fn what_was_taken_and_not_flushed_is_still_being_sent() {
    let sips = Sips {
        len: 1000,
        taken: Vec::new(),
        flushes: 2,
    };
    let mut socket = Socket::new(sips, Role::Hub, Bytes::new());
    assert!(!socket.has_output());
    socket.put(|out| out.extend_from_slice(b"a"));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for _ in 0..2 {
        assert!(socket.poll_send(&mut cx).is_pending());
        assert!(socket.is_sending() && socket.has_output());
    }
    assert!(socket.poll_send(&mut cx).is_ready());
    assert!(!socket.is_sending() && !socket.has_output());
}

/// Sends as many messages of this length as may be on their way at once. When they have arrived neither end keeps more of them than
/// a small buffer.
async fn passed<S: AsyncRead + AsyncWrite + Unpin>(
    from: &mut Socket<S>,
    to: &mut Socket<S>,
    len: usize,
) {
    let message = vec![0x5a; len];
    for _ in 0..TOGETHER {
        assert_eq!(from.put(|out| out.extend_from_slice(&message)), len);
    }
    let sending = poll_fn(|cx| from.poll_send(cx));
    let receiving = async {
        for _ in 0..TOGETHER {
            let came = poll_fn(|cx| to.poll_message(cx)).await.unwrap();
            let came = came.try_into_mut().expect("its reader keeps none of it");
            assert_eq!((came.len(), came.capacity()), (len, len));
            assert_eq!(came, message);
        }
    };
    let (sent, ()) = tokio::join!(sending, receiving);
    sent.unwrap();
    assert!(from.out.is_empty() && !from.has_output());
    let spare = from.spare.capacity();
    assert!(spare <= KEPT, "{spare} bytes are kept behind {len}");
    assert!(to.reader.direct().is_none(), "no message is under way");
}

/// L53: buffers grow with what a line carries, and go with it.
#[tokio::test]
async fn what_long_messages_took_is_given_back() {
    let (hub, agent) = tokio::io::duplex(4 << 10);
    let mut hub = Socket::new(hub, Role::Hub, Bytes::new());
    let mut agent = Socket::new(agent, Role::Agent, Bytes::new());
    hub.proven();
    agent.proven();
    for len in [10, MAX_SEALED, MAX_SEALED, 10] {
        passed(&mut hub, &mut agent, len).await;
        passed(&mut agent, &mut hub, len).await;
    }
    // Of short messages one is kept, or each would cost an allocation.
    assert!(hub.spare.capacity() > 0 && agent.spare.capacity() > 0);
}
