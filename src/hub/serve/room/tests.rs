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
        places.strangers.all.len(),
        places.idle.len(),
        places.users,
        places.lines,
    )
}

/// A request of somebody who is known.
fn user(seat: &Arc<Seat>) -> Result<Asking, Refusal> {
    let asking = seat.asked(Sort::User)?;
    seat.know();
    Ok(asking)
}

fn goes(seat: &Seat) -> bool {
    seat.gives_way.is_cancelled()
}

/// L46: whoever comes is let in, and the silent give way.
#[test]
fn the_one_that_has_been_silent_longest_gives_way() {
    let room = Room::new(LIMITS);
    let [first, second, third] = [room.enter(None), room.enter(None), room.enter(None)];
    assert_eq!(
        (goes(&first), goes(&second), goes(&third)),
        (true, false, false)
    );
    // Whoever is known who asked there, it is no stranger's any more.
    let asking = user(&second).unwrap();
    let [_fourth, _fifth] = [room.enter(None), room.enter(None)];
    assert_eq!((goes(&second), goes(&third)), (false, true));
    drop((first, asking, second));
    assert_eq!(places(&room), (2, 0, 0, 0));
}

/// L46: nobody takes a line's place but a line.
#[test]
fn users_take_no_place_of_a_line() {
    let room = Room::new(LIMITS);
    let seats = [room.enter(None), room.enter(None)];
    let _asking = seats.each_ref().map(|seat| user(seat).unwrap());
    let refused = room.enter(None).asked(Sort::User).err().unwrap();
    assert_eq!(
        (refused.code.as_u16(), refused.reason, refused.retry_after),
        (503, "Connections", Some(1))
    );
    let line = room.enter(None);
    line.asked(Sort::Line).unwrap().for_good();
    let other = room.enter(None);
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
    let [used, idle] = [room.enter(None), room.enter(None)];
    let _watch = user(&used).unwrap();
    drop(user(&idle).unwrap());
    assert_eq!(places(&room), (0, 1, 2, 0));
    let next = room.enter(None);
    let asking = next.asked(Sort::User).unwrap();
    assert!(!goes(&idle), "for a stranger nobody has to go");
    next.know();
    assert_eq!((goes(&used), goes(&idle)), (false, true));
    drop(idle);
    assert_eq!(places(&room), (0, 0, 2, 0));
    drop((asking, next));
    assert_eq!(places(&room), (0, 0, 1, 0));
}

/// L46: what a stranger asks for may have no end: a body that never comes, an answer that nobody reads.
#[test]
fn strangers_take_no_place_of_a_user_whatever_they_ask_for() {
    let room = Room::new(LIMITS);
    let enter = |_| {
        let seat = room.enter(None);
        let asking = seat.asked(Sort::User).unwrap();
        (seat, asking)
    };
    let crowd: Vec<(Arc<Seat>, Asking)> = (0..20).map(enter).collect();
    assert_eq!(places(&room), (2, 0, 0, 0));
    let gone: Vec<bool> = crowd.iter().map(|(seat, _)| goes(seat)).collect();
    assert_eq!(gone, [[true; 18].as_slice(), &[false; 2]].concat());
    let users = [room.enter(None), room.enter(None)];
    let asking = users.each_ref().map(|seat| user(seat).unwrap());
    assert!(users.iter().all(|seat| seat.is_known()));
    assert_eq!(places(&room), (0, 0, 2, 0));
    drop((crowd, asking));
    assert_eq!(places(&room), (0, 2, 2, 0));
}

/// L46
#[test]
fn a_guest_for_whom_there_is_no_room_any_more_stays_one() {
    let room = Room::new(LIMITS);
    let [ada, bob] = [room.enter(None), room.enter(None)];
    let of_ada = user(&ada).unwrap();
    let of_bob = bob.asked(Sort::User).unwrap();
    let eve = room.enter(None);
    let _of_eve = user(&eve).unwrap();
    bob.know();
    assert!(!bob.is_known());
    assert_eq!(places(&room), (1, 0, 2, 0));
    drop((of_ada, of_bob));
    // Its next request.
    drop(user(&bob).unwrap());
    assert_eq!((bob.is_known(), goes(&ada)), (true, true));
    assert_eq!(places(&room), (0, 1, 3, 0));
}

/// A proxy keeps its connections for whoever asks next, and that may be an agent.
#[test]
fn a_line_on_a_strangers_connection_has_a_place_of_a_line() {
    let room = Room::new(LIMITS);
    let [first, second] = [room.enter(None), room.enter(None)];
    for seat in [&first, &second] {
        drop(seat.asked(Sort::User).unwrap());
    }
    let line = first.asked(Sort::Line).unwrap();
    assert!(line.is_a_line());
    line.for_good();
    assert_eq!(places(&room), (1, 0, 0, 1));
    let refused = second.asked(Sort::Line).err().unwrap();
    assert_eq!(refused.what, "the hub has as many lines as it takes");
    assert_eq!(places(&room), (0, 0, 0, 1));
    drop((first, second));
    assert_eq!(places(&room), (0, 0, 0, 0));
}

/// Of one address three quarters are safe from others, and what nobody else wants is its own.
#[test]
fn a_crowded_address_pushes_out_its_own() {
    let room = Room::new(Connections {
        strangers: 8,
        ..LIMITS
    });
    let [crowd, other, third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| ip.parse().ok());
    let alone: Vec<_> = (0..8).map(|_| room.enter(crowd)).collect();
    assert!(!alone.iter().any(|seat| goes(seat)));
    drop(alone);
    let of_other = [room.enter(other), room.enter(other)];
    let of_crowd: Vec<_> = (0..9).map(|_| room.enter(crowd)).collect();
    let gone = |seats: &[Arc<Seat>]| seats.iter().filter(|seat| goes(seat)).count();
    assert_eq!((gone(&of_other), gone(&of_crowd)), (0, 3));
    // Beyond the whole whoever is there longest goes.
    let _third = room.enter(third);
    assert_eq!((gone(&of_other), gone(&of_crowd)), (1, 3));
    drop((of_other, of_crowd));
    assert_eq!(places(&room), (1, 0, 0, 0));
    assert_eq!(room.lock().strangers.of.len(), 1);
}

/// Whatever runs there: it may have no end.
#[tokio::test(start_paused = true)]
async fn a_guest_that_makes_room_is_ended_and_a_user_is_not() {
    let room = Room::new(Connections {
        strangers: 1,
        ..LIMITS
    });
    let [guest, known] = [room.enter(None), room.enter(None)];
    let _asking = [guest.asked(Sort::User).unwrap(), user(&known).unwrap()];
    let _next = [room.enter(None), room.enter(None)];
    guest.dismissed().await;
    let day = Duration::from_hours(24);
    assert!(tokio::time::timeout(day, known.dismissed()).await.is_err());
}

/// L40: each request of a stranger has to come as soon as the first. A proxy keeps its connections for whoever asks next.
#[tokio::test(start_paused = true)]
async fn a_guest_that_asks_no_more_ends_after_a_moment() {
    let room = Room::new(LIMITS);
    for (from, expected) in [("192.0.2.1", LIMITS.first), ("", LIMITS.idle)] {
        let seat = room.enter(from.parse().ok());
        drop(seat.asked(Sort::User).unwrap());
        let began = Instant::now();
        seat.unused().await;
        assert_eq!(began.elapsed(), expected, "{from}");
    }
}

/// A session is never idle, whatever passes on it.
#[tokio::test(start_paused = true)]
async fn a_switched_connection_is_in_use_for_good() {
    let room = Room::new(LIMITS);
    let seat = room.enter(None);
    user(&seat).unwrap().for_good();
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
    let seat = room.enter(None);
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
    room.enter(None).unused().await;
    assert_eq!(began.elapsed(), LIMITS.first);

    let seat = room.enter(None);
    let long = Duration::from_hours(2);
    let asks = async {
        let watch = user(&seat).unwrap();
        advance(long).await;
        drop(watch);
        advance(LIMITS.idle / 2).await;
        drop(user(&seat).unwrap());
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
    let seat = room.enter(None);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut unused = pin!(seat.unused());
    assert!(unused.as_mut().poll(&mut context).is_pending());
    drop(user(&seat).unwrap());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(unused.as_mut().poll(&mut context).is_pending());
    for _ in 0..3 {
        drop(user(&seat).unwrap());
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
}
