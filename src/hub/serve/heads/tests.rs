use axum::body::Body;
use http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use super::super::requests;
use super::*;

const WHOLE: &[u8] = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
const PART: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\nX: ";
const REST: &[u8] = b"y\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\n";

/// A connection whose requests are answered after so long.
fn served(takes: Duration) -> (DuplexStream, JoinSet<()>) {
    let (client, server) = duplex(1 << 10);
    let answer = move |_, _| async move {
        sleep(takes).await;
        Response::new(Body::empty())
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(requests(server, answer));
    (client, tasks)
}

/// The next answer, as far as it comes.
async fn answer(client: &mut DuplexStream) -> String {
    let mut told = Vec::new();
    while !told.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => told.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(told).unwrap()
}

/// Seconds until the connection ends, without another word.
async fn ended(client: &mut DuplexStream) -> u64 {
    let began = Instant::now();
    assert_eq!(answer(client).await, "");
    began.elapsed().as_secs()
}

/// L5: who asks every now and then finds the connection open.
#[tokio::test(start_paused = true)]
async fn a_client_may_be_silent_between_two_requests() {
    let (mut client, _tasks) = served(Duration::ZERO);
    for silent in [0, 9, 11, 60, 280] {
        sleep(Duration::from_secs(silent)).await;
        client.write_all(WHOLE).await.unwrap();
        let told = answer(&mut client).await;
        assert!(told.starts_with(OK), "after {silent} s: {told}");
    }
    // L40: and then has ten seconds for a head, as for the first.
    sleep(Duration::from_mins(1)).await;
    client.write_all(PART).await.unwrap();
    sleep(Duration::from_secs(9)).await;
    client.write_all(REST).await.unwrap();
    assert!(answer(&mut client).await.starts_with(OK));
}

/// L40: slow-loris, at the second head.
#[tokio::test(start_paused = true)]
async fn a_head_that_has_begun_is_not_waited_for() {
    for drips in [false, true] {
        let (mut client, _tasks) = served(Duration::ZERO);
        client.write_all(WHOLE).await.unwrap();
        assert!(answer(&mut client).await.starts_with(OK));
        sleep(Duration::from_mins(1)).await;
        client.write_all(PART).await.unwrap();
        let (mut read, mut write) = tokio::io::split(client);
        let dripping = async {
            let mut ticks = interval(Duration::from_millis(800));
            loop {
                ticks.tick().await;
                if drips {
                    drop(write.write_all(b"x").await);
                }
            }
        };
        let began = Instant::now();
        let mut told = Vec::new();
        tokio::select! {
            read = read.read_to_end(&mut told) => drop(read.unwrap()),
            () = dripping => {}
        }
        assert_eq!((began.elapsed().as_secs(), told), (10, Vec::new()));
    }
}

/// A request behind one that takes its time is not late because of that.
#[tokio::test(start_paused = true)]
async fn a_head_behind_a_running_request_has_its_time_from_the_answer_on() {
    let takes = Duration::from_mins(1);
    let behind = [WHOLE, PART].concat();
    let (mut client, _tasks) = served(takes);
    client.write_all(&behind).await.unwrap();
    assert!(answer(&mut client).await.starts_with(OK));
    sleep(Duration::from_secs(9)).await;
    client.write_all(REST).await.unwrap();
    assert!(answer(&mut client).await.starts_with(OK));

    let (mut client, _tasks) = served(takes);
    client.write_all(&behind).await.unwrap();
    assert!(answer(&mut client).await.starts_with(OK));
    assert_eq!(ended(&mut client).await, 10);
}

/// Of a fresh connection the silence counts, too.
#[tokio::test(start_paused = true)]
async fn the_first_head_has_its_time_from_the_connection_on() {
    for sent in [&b""[..], PART] {
        let (mut client, _tasks) = served(Duration::ZERO);
        client.write_all(sent).await.unwrap();
        assert_eq!(ended(&mut client).await, 10, "{sent:?}");
    }
}
