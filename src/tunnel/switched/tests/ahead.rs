//! A server that is read ahead of its user, and what a ping to it waits for.

use std::time::Duration;

use super::*;

/// Writes as much as the kernels take, closes the socket, and gives what it wrote.
fn say_and_close(mut socket: TcpStream) -> Vec<u8> {
    use std::io::Write as _;

    socket.set_nonblocking(true).unwrap();
    let mut said = Vec::new();
    loop {
        let piece: Vec<u8> = (0_u32..1000).flat_map(u32::to_be_bytes).collect();
        match socket.write(&piece) {
            Ok(size) => said.extend_from_slice(&piece[..size]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return said;
            }
        }
    }
}

const ALL: usize = 32 << 20;

/// L4: the API server was done, and closed, with megabytes in its kernel that a slow user had not read yet. His next ping had
/// that kernel reset the connection, and the tail of the copy was lost: 2.7 MB of 2 GiB.
#[tokio::test]
async fn a_ping_does_not_cost_what_lies_in_the_servers_kernel() {
    let (far, server) = connection();
    let (mut user, mut near) = duplex(1000);
    user.write_all(b"ping").await.unwrap();
    // Behind the user's back it sends, as `kubectl` does at the sixth second.
    let said = say_and_close(server);
    let mut far = Eager::new(of_tokio(far), Ahead::new(ALL), Dialect::Other);
    let carried = async move { carry(&mut near, &mut far, BUFFER).await };
    let reading = async {
        let mut got = Vec::new();
        user.read_to_end(&mut got).await.unwrap();
        drop(user);
        got
    };
    let (carried, got) = tokio::join!(carried, reading);
    assert!(got == said, "{} of {} bytes", got.len(), said.len());
    let size = u64::try_from(said.len()).unwrap();
    assert_eq!(carried.map_err(|error| error.to_string()).unwrap().1, size);
}

/// Where no memory is left to read ahead, nothing waits for it.
#[tokio::test]
async fn without_memory_to_read_ahead_what_a_user_sends_goes_at_once() {
    let (mut user, mut near) = duplex(8);
    let (far, mut server) = duplex(1 << 20);
    server.write_all(&text()).await.unwrap();
    let mut far = Eager::new(far, Ahead::new(0), Dialect::Other);
    let carried = async { carry(&mut near, &mut far, BUFFER).await };
    let talk = async {
        user.write_all(b"ctrl-c").await.unwrap();
        let mut got = [0; 6];
        server.read_exact(&mut got).await.unwrap();
        drop((user, server));
        got
    };
    let (_, got) = tokio::join!(carried, talk);
    assert_eq!(&got, b"ctrl-c");
}

/// L4: on a busy machine it takes long to read what the server's kernel holds, or it is more than may be read ahead. A ping had
/// that kernel reset the connection before the last of it had come.
#[tokio::test(start_paused = true)]
async fn a_ping_waits_for_what_is_slow_to_come_and_for_more_than_may_be_read_ahead() {
    // By what there is at once, how many pieces of 1,000 bytes follow, and the time before each.
    for (at_once, pieces, apart) in [(1000, 20, 10), (9 << 20, 1, 30)] {
        let (mut user, mut near) = duplex(64 << 10);
        let (far, server) = duplex(10 << 20);
        let mut far = Eager::new(far, Ahead::new(ALL), Dialect::Other);
        let (mut hears, mut talks) = tokio::io::split(server);
        let carrying = async { carry(&mut near, &mut far, BUFFER).await.map(|_| ()) };
        let talking = async {
            talks.write_all(&vec![7; at_once]).await.unwrap();
            for _ in 0..pieces {
                tokio::time::sleep(Duration::from_millis(apart)).await;
                talks.write_all(&[7; 1000]).await.unwrap();
            }
            tokio::time::Instant::now()
        };
        let pinging = async {
            user.write_all(b"ping").await.unwrap();
            hears.read_exact(&mut [0; 4]).await.unwrap();
            tokio::time::Instant::now()
        };
        let (last, pinged) = tokio::select! {
            both = async { tokio::join!(talking, pinging) } => both,
            ended = carrying => panic!("{ended:?}"),
        };
        assert!(pinged > last, "{:?} before the last of it", last - pinged);
    }
}

/// What a user sends to a server that talks without a pause waits for 250 ms, once in four seconds, and memory stays within its bound.
#[tokio::test(start_paused = true)]
async fn a_server_that_talks_on_holds_nothing_up_for_long() {
    let (mut user, mut near) = duplex(8);
    let (far, server) = duplex(1000);
    let pool = Ahead::new(ALL);
    let mut far = Eager::new(far, pool, Dialect::Other);
    let (mut hears, mut talks) = tokio::io::split(server);
    let talking = async {
        loop {
            talks.write_all(&[7; 1000]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let carrying = async { carry(&mut near, &mut far, BUFFER).await.map(|_| ()) };
    let asking = async {
        let mut waits = Vec::new();
        for _ in 0..3 {
            let asked = tokio::time::Instant::now();
            user.write_all(b"stop").await.unwrap();
            hears.read_exact(&mut [0; 4]).await.unwrap();
            waits.push(asked.elapsed().as_millis());
        }
        waits
    };
    let waits = tokio::select! {
        () = talking => unreachable!(),
        ended = carrying => panic!("{ended:?}"),
        waits = asking => waits,
    };
    assert!((250..=253).contains(&waits[0]), "{waits:?}");
    assert_eq!(waits[1..], [0, 0]);
}

/// A server says so many bytes, and its user takes nothing for a minute: how many of them are taken by then, and whether that is all. If so, the user reads them.
async fn taken_at_once(pool: Ahead, most: usize) -> (usize, bool) {
    let (mut user, mut near) = duplex(8);
    let (far, mut server) = duplex(1000);
    let mut far = Eager::new(far, pool, Dialect::WebSocket);
    let mut taken = 0;
    let said: Vec<u8> = text().into_iter().cycle().take(most).collect();
    let talking = async {
        for piece in said.chunks(1000) {
            server.write_all(piece).await.unwrap();
            taken += piece.len();
        }
        server.shutdown().await.unwrap();
    };
    let carrying = async { carry_ahead(&mut near, &mut far, BUFFER).await };
    let mut carrying = std::pin::pin!(carrying);
    let whole = tokio::select! {
        done = tokio::time::timeout(Duration::from_mins(1), talking) => done.is_ok(),
        ended = &mut carrying => panic!("{ended:?}"),
    };
    if whole {
        let reading = async {
            let mut got = Vec::new();
            user.read_to_end(&mut got).await.unwrap();
            drop((user, server));
            got
        };
        let (carried, got) = tokio::join!(carrying, reading);
        assert!(got == said, "{} of {most} bytes", got.len());
        assert_eq!(carried.unwrap().1, u64::try_from(most).unwrap());
    }
    (taken, whole)
}

/// L4: a command had ended long before its slow user had all that it said, and the API server's next ping to the kubelet cost the
/// rest, without an error.
#[tokio::test(start_paused = true)]
async fn what_a_command_says_is_taken_though_its_user_reads_nothing_yet() {
    let said = 7 << 20;
    assert_eq!(taken_at_once(Ahead::new(ALL), said).await, (said, true));
}

#[tokio::test(start_paused = true)]
async fn no_more_is_read_ahead_than_one_connection_may_have() {
    let (taken, whole) = taken_at_once(Ahead::new(ALL), 9 << 20).await;
    assert!(!whole);
    let bound = 8 << 20;
    assert!((bound..bound + 4000).contains(&taken), "{taken}");
}

/// What is left is for those who send something.
#[tokio::test(start_paused = true)]
async fn a_slow_user_leaves_memory_for_one_who_sends_something() {
    let pool = Ahead::new(9 << 20);
    let (taken, whole) = taken_at_once(pool.clone(), 9 << 20).await;
    assert!(!whole);
    let bound = 1 << 20;
    assert!((bound..bound + 4000).contains(&taken), "{taken}");
}

/// A client whose pings have no answer would end what it is too slow for.
#[tokio::test(start_paused = true)]
async fn pings_go_on_while_what_a_user_does_not_take_is_read_ahead() {
    let (mut user, mut near) = duplex(8);
    let (far, mut server) = duplex(1000);
    let mut far = Eager::new(far, Ahead::new(ALL), Dialect::WebSocket);
    let talk = async {
        server.write_all(&text()).await.unwrap();
        let began = tokio::time::Instant::now();
        user.write_all(&WEBSOCKET_PING).await.unwrap();
        let mut got = [0; WEBSOCKET_PING.len()];
        server.read_exact(&mut got).await.unwrap();
        (got, began.elapsed().as_millis())
    };
    let (got, after) = tokio::select! {
        talked = talk => talked,
        ended = carry_ahead(&mut near, &mut far, BUFFER) => panic!("{ended:?}"),
    };
    assert_eq!(got, WEBSOCKET_PING);
    assert!((1000..1010).contains(&after), "{after}");
}

const PING: [u8; 12] = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
const WEBSOCKET_PING: [u8; 6] = [0x89, 0x80, 1, 2, 3, 4];

/// When what a user sends arrives at a server that begins to talk 2 s later: `pieces` times 1,000 bytes, one each `apart` ms.
async fn arrives(dialect: Dialect, sent: &[(u64, &[u8])], pieces: u32, apart: u64) -> Vec<u128> {
    let (mut user, mut near) = duplex(100);
    let (far, server) = duplex(1000);
    let mut far = Eager::new(far, Ahead::new(ALL), dialect);
    let (mut hears, mut talks) = tokio::io::split(server);
    let began = tokio::time::Instant::now();
    let carrying = async { carry(&mut near, &mut far, BUFFER).await.map(|_| ()) };
    let (mut writes, mut reads) = (Vec::new(), vec![0; 1000]);
    let (mut user_hears, mut user_sends) = tokio::io::split(&mut user);
    let listening = async { while user_hears.read(&mut reads).await.unwrap() > 0 {} };
    let talking = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for _ in 0..pieces {
            talks.write_all(&[7; 1000]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(apart)).await;
        }
        std::future::pending::<()>().await;
    };
    let sending = async {
        for (at, bytes) in sent {
            tokio::time::sleep_until(began + Duration::from_millis(*at)).await;
            user_sends.write_all(bytes).await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let hearing = async {
        for (_, bytes) in sent {
            let mut got = vec![0; bytes.len()];
            hears.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, bytes);
            writes.push(began.elapsed().as_millis());
        }
    };
    tokio::select! {
        () = hearing => {}
        () = listening => unreachable!(),
        () = talking => unreachable!(),
        () = sending => unreachable!(),
        ended = carrying => panic!("{ended:?}"),
    }
    writes
}

/// L4: on a busy machine two of a hundred copies ended in an unexpected EOF still: what the kubelet's kernel held is not in the API
/// server's, and a ping that the API server gives on has the one lose it that was not to be read from here.
#[tokio::test(start_paused = true)]
async fn a_ping_waits_until_the_server_has_been_silent_for_a_second() {
    // It talks from 2,000 ms on; the last of it comes at 4,700.
    let sent: [(u64, &[u8]); 2] = [(2_100, &PING), (3_000, &PING)];
    let at = arrives(Dialect::Spdy, &sent, 10, 300).await;
    assert_eq!(at, [5_700, 5_700]);
}

#[tokio::test(start_paused = true)]
async fn a_ping_to_a_silent_server_goes_at_once() {
    let at = arrives(Dialect::WebSocket, &[(1_500, &WEBSOCKET_PING)], 10, 300).await;
    assert_eq!(at, [1_500]);
}

/// A Ctrl-C behind a ping waits no longer than it would without, and does not overtake it.
#[tokio::test(start_paused = true)]
async fn what_comes_behind_a_ping_takes_it_along() {
    let sent: [(u64, &[u8]); 2] = [(2_110, &PING), (2_150, b"ctrl-c")];
    let at = arrives(Dialect::Spdy, &sent, 1000, 5).await;
    assert!(at[0] >= 2_150 && at[1] <= 2_402, "{at:?}");
}

/// A client that ends a WebSocket whose ping has no answer within 20 s is not made to.
#[tokio::test(start_paused = true)]
async fn a_ping_waits_no_longer_than_its_protocol_bears() {
    for (dialect, ping, patience) in [
        (Dialect::WebSocket, &WEBSOCKET_PING[..], 10_000),
        (Dialect::Spdy, &PING[..], 60_000),
    ] {
        let at = arrives(dialect, &[(2_110, ping)], 10_000, 10).await;
        let waited = at[0] - 2_110;
        assert!(
            (patience..=patience + 255).contains(&waited),
            "{dialect:?} {waited}"
        );
    }
}
