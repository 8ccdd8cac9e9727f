use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::time::{Instant, advance};

use super::*;

const LIMITS: Connections = Connections {
    strangers: 2,
    users: 2,
    lines: 1,
    first: Duration::from_secs(10),
    idle: Duration::from_mins(5),
};

fn places(room: &Room) -> (usize, usize, usize, usize) {
    let places = room.lock();
    (
        places.strangers.len(),
        places.idle.len(),
        places.users,
        places.lines,
    )
}

fn goes(seat: &Seat) -> bool {
    seat.gives_way.is_cancelled()
}

/// L46: whoever comes is let in, and the silent give way.
#[test]
fn the_one_that_has_been_silent_longest_gives_way() {
    let room = Room::new(LIMITS);
    let [first, second, third] = [room.enter(), room.enter(), room.enter()];
    assert_eq!(
        (goes(&first), goes(&second), goes(&third)),
        (true, false, false)
    );
    // Who has asked is not silent any more.
    let asking = second.asked(Sort::User).unwrap();
    let [_fourth, _fifth] = [room.enter(), room.enter()];
    assert_eq!((goes(&second), goes(&third)), (false, true));
    drop((first, asking, second));
    assert_eq!(places(&room), (2, 0, 0, 0));
}

/// L46: nobody takes a line's place but a line.
#[test]
fn users_take_no_place_of_a_line() {
    let room = Room::new(LIMITS);
    let seats = [room.enter(), room.enter()];
    let _asking = seats.each_ref().map(|seat| seat.asked(Sort::User).unwrap());
    let refused = room.enter().asked(Sort::User).err().unwrap();
    assert_eq!(
        (refused.code.as_u16(), refused.reason, refused.retry_after),
        (503, "Connections", Some(1))
    );
    let line = room.enter();
    line.asked(Sort::Line).unwrap().for_good();
    let other = room.enter();
    let refused = other.asked(Sort::Line).err().unwrap();
    assert_eq!(refused.what, "the hub has as many lines as it takes");
    assert_eq!(places(&room), (0, 0, 2, 1));
    drop((line, other));
    assert_eq!(places(&room), (0, 0, 2, 0));
}

/// L40: a connection that nothing runs on is in nobody's way.
#[test]
fn a_users_idle_connection_gives_way_and_one_in_use_does_not() {
    let room = Room::new(LIMITS);
    let [used, idle] = [room.enter(), room.enter()];
    let _watch = used.asked(Sort::User).unwrap();
    drop(idle.asked(Sort::User).unwrap());
    assert_eq!(places(&room), (0, 1, 2, 0));
    let next = room.enter();
    let asking = next.asked(Sort::User).unwrap();
    assert_eq!((goes(&used), goes(&idle)), (false, true));
    drop(idle);
    assert_eq!(places(&room), (0, 0, 2, 0));
    drop((asking, next));
    assert_eq!(places(&room), (0, 0, 1, 0));
}

/// A session is never idle, whatever passes on it.
#[tokio::test(start_paused = true)]
async fn a_switched_connection_is_in_use_for_good() {
    let room = Room::new(LIMITS);
    let seat = room.enter();
    seat.asked(Sort::User).unwrap().for_good();
    assert_eq!(places(&room), (0, 0, 1, 0));
    let day = Duration::from_hours(24);
    assert!(tokio::time::timeout(day, seat.unused()).await.is_err());
    drop(seat);
    assert_eq!(places(&room), (0, 0, 0, 0));
}

/// Nothing holds the place of one that there is no room for.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_ends_at_once() {
    let room = Room::new(Connections { users: 0, ..LIMITS });
    let seat = room.enter();
    let began = Instant::now();
    let refused = async {
        assert!(seat.asked(Sort::User).is_err());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = seat.unused() => {}
        () = refused => {}
    }
    assert_eq!(
        (began.elapsed(), places(&room)),
        (Duration::ZERO, (0, 0, 0, 0))
    );
}

/// L40
#[tokio::test(start_paused = true)]
async fn a_connection_that_nothing_is_asked_on_ends_after_a_while() {
    let room = Room::new(LIMITS);
    let began = Instant::now();
    room.enter().unused().await;
    assert_eq!(began.elapsed(), LIMITS.first);

    let seat = room.enter();
    let long = Duration::from_hours(2);
    let asks = async {
        let watch = seat.asked(Sort::User).unwrap();
        advance(long).await;
        drop(watch);
        advance(LIMITS.idle / 2).await;
        drop(seat.asked(Sort::User).unwrap());
        std::future::pending::<()>().await;
    };
    let began = Instant::now();
    tokio::select! {
        biased;
        () = seat.unused() => {}
        () = asks => {}
    }
    assert_eq!(began.elapsed(), long + LIMITS.idle / 2 + LIMITS.idle);
}

/// How often a task was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// L52: only the first request changes how long the connection may be silent.
#[tokio::test(start_paused = true)]
async fn requests_do_not_wake_who_waits_for_the_end_of_their_connection() {
    let room = Room::new(LIMITS);
    let seat = room.enter();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut unused = pin!(seat.unused());
    assert!(unused.as_mut().poll(&mut context).is_pending());
    drop(seat.asked(Sort::User).unwrap());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(unused.as_mut().poll(&mut context).is_pending());
    for _ in 0..3 {
        drop(seat.asked(Sort::User).unwrap());
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
}
