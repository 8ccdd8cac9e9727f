use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::*;

/// The time for a line's dial.
const LIMIT: Duration = Duration::from_secs(10);
const REFUSED: io::ErrorKind = io::ErrorKind::ConnectionRefused;

#[derive(Debug, Clone, Copy)]
enum Host {
    Silent,
    Refuses,
    Answers,
}

use Host::{Answers, Refuses, Silent};

/// None = the time is over.
type Outcome = Option<Result<usize, Vec<io::ErrorKind>>>;
/// Who was begun with, after how many milliseconds.
type Begun = Vec<(usize, u128)>;

async fn raced(hosts: &[Host]) -> (Outcome, Begun) {
    let start = Instant::now();
    let mut begun = Vec::new();
    let all: Vec<usize> = (0..hosts.len()).collect();
    let racing = race(&all, |nth| {
        begun.push((nth, start.elapsed().as_millis()));
        let host = hosts[nth];
        async move {
            match host {
                Silent => std::future::pending::<io::Result<usize>>().await,
                Refuses => Err(REFUSED.into()),
                Answers => Ok(nth),
            }
        }
    });
    let ended = timeout(LIMIT, racing).await.ok();
    let kinds = |errors: Vec<io::Error>| errors.iter().map(io::Error::kind).collect();
    (ended.map(|ended| ended.map_err(kinds)), begun)
}

/// A first address that drops packets kept the second one from being dialled, each time anew.
#[tokio::test(start_paused = true)]
async fn a_silent_address_is_waited_for_shortly_and_one_that_refuses_not_at_all() {
    for (hosts, outcome, begun) in [
        (vec![Silent, Answers], Some(Ok(1)), vec![(0, 0), (1, 250)]),
        (vec![Refuses, Answers], Some(Ok(1)), vec![(0, 0), (1, 0)]),
        (
            vec![Silent, Refuses, Answers],
            Some(Ok(2)),
            vec![(0, 0), (1, 250), (2, 250)],
        ),
        (vec![Answers, Answers], Some(Ok(0)), vec![(0, 0)]),
        (
            vec![Refuses, Refuses],
            Some(Err(vec![REFUSED; 2])),
            vec![(0, 0), (1, 0)],
        ),
        (vec![], Some(Err(vec![])), vec![]),
    ] {
        assert_eq!(raced(&hosts).await, (outcome, begun), "{hosts:?}");
    }
}

/// The time for a dial ends it; until then there are so many and no more.
#[tokio::test(start_paused = true)]
async fn while_nobody_answers_all_are_begun_again_within_bounds() {
    let rounds: [u128; 5] = [0, 2_000, 4_000, 6_000, 8_000];
    let alone: Begun = rounds.iter().map(|at| (0, *at)).collect();
    assert_eq!(raced(&[Silent]).await, (None, alone));
    let both = rounds.iter().flat_map(|at| [(0, *at), (1, at + 250)]);
    let both: Begun = both.collect();
    for other in [Silent, Refuses] {
        let outcome = raced(&[Silent, other]).await;
        assert_eq!(outcome, (None, both.clone()), "{other:?}");
    }
    let many: Begun = (0..MOST).zip((0..).step_by(250)).collect();
    assert_eq!(raced(&[Silent; 30]).await, (None, many));
}

/// L13: packets that were lost until now must not cost the time that the system waits before it sends the same again.
#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_answers_is_begun_again_beside_it() {
    let began = Instant::now();
    let mut nth = 0;
    let third = race(&[()], |()| {
        nth += 1;
        let answered = nth == 3;
        async move {
            if answered {
                return Ok("the third");
            }
            std::future::pending::<io::Result<&str>>().await
        }
    });
    assert_eq!(third.await.unwrap(), "the third");
    assert_eq!(began.elapsed(), UNANSWERED * 2);
    // A slow one may still come first, and one that is refused takes no others with it.
    let began = Instant::now();
    let mut nth = 0;
    let slow = race(&[()], |()| {
        nth += 1;
        let slow = nth == 1;
        async move {
            if slow {
                sleep(UNANSWERED * 3).await;
                return Ok("the first");
            }
            Err(io::Error::from(REFUSED))
        }
    });
    assert_eq!(slow.await.unwrap(), "the first");
    assert_eq!(began.elapsed(), UNANSWERED * 3);
}

/// One that is refused at once is told at once.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_not_waited_for() {
    let began = Instant::now();
    let refused = raced(&[Refuses]).await;
    assert_eq!(refused, (Some(Err(vec![REFUSED])), vec![(0, 0)]));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn families_take_turns_and_each_address_is_tried_once_a_round() {
    let [a, b, c] = ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.3:443"];
    let [six, seven] = ["[2001:db8::1]:443", "[2001:db8::2]:443"];
    for (found, order) in [
        (&[six, seven, a, b][..], &[six, a, seven, b][..]),
        (&[a, b, c, six], &[a, six, b, c]),
        (&[six, six, a, six], &[six, a]),
        (&[a], &[a]),
        (&[], &[]),
    ] {
        assert_eq!(ordered(&addresses(found)), addresses(order));
    }
    // The other family is not lost behind many addresses of the one.
    let last = addresses(&[six]);
    let mut many: Vec<_> = (0..100_u8)
        .map(|n| SocketAddr::from(([192, 0, 2, n], 443)))
        .collect();
    many.extend(&last);
    let order = ordered(&many);
    assert_eq!((order.len(), order[1]), (MOST, last[0]));
}

#[test]
fn the_error_tells_of_each_address_and_stays_short() {
    let told = |addresses: &[SocketAddr], kinds: &[io::ErrorKind]| {
        let errors = kinds.iter().map(|kind| io::Error::from(*kind)).collect();
        let error = unreached(addresses, errors);
        (error.kind(), error.to_string())
    };
    let nowhere = io::ErrorKind::NetworkUnreachable;
    let both = addresses(&["[2001:db8::1]:443", "192.0.2.1:443"]);
    let text = "[2001:db8::1]:443: network unreachable; 192.0.2.1:443: connection refused";
    assert_eq!(told(&both, &[nowhere, REFUSED]), (REFUSED, text.to_owned()));
    assert_eq!(
        told(&both[..1], &[nowhere]),
        (nowhere, "network unreachable".to_owned())
    );
    let many = vec![both[1]; MOST];
    let one = "192.0.2.1:443: network unreachable; ";
    let text = format!("{}and 6 more", one.repeat(TOLD));
    assert_eq!(told(&many, &[nowhere; MOST]), (nowhere, text));
    let none = (
        io::ErrorKind::NotFound,
        "the name has no address".to_owned(),
    );
    assert_eq!(told(&[], &[]), none);
}

/// With sockets: one port that nobody listens on, and one that somebody does.
#[tokio::test]
async fn the_address_that_answers_is_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = free.local_addr().unwrap();
    drop(free);
    let socket = connect(&[closed, open]).await.unwrap();
    assert_eq!(socket.peer_addr().unwrap(), open);
    let error = connect(&[closed]).await.unwrap_err();
    assert_eq!(error.kind(), REFUSED);
    let found = lookup(("127.0.0.1", open.port())).await.unwrap();
    assert_eq!(found, [open]);
}
