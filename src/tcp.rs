//! A TCP connection to whichever address of a name answers first (Happy Eyeballs, RFC 8305).
//!
//! The system's own way is one address after the other, each for as long as it takes. Where the first one drops packets, the time for the
//! dial is over before the second one is asked, at every dial anew.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::time::{Instant, sleep_until};

/// Before the next address is tried beside one that has not answered (RFC 8305 §8, Connection Attempt Delay).
const NEXT: Duration = Duration::from_millis(250);
/// Before what nobody answers is begun once more beside it. The system asks again after 1, 3 and 7 s: where packets were lost until
/// a moment ago, the line would be back up to 4 s later.
const UNANSWERED: Duration = Duration::from_secs(2);
/// How often each address is tried: no more than the time for a dial has room for.
const ROUNDS: usize = 5;
/// Addresses of a name that are tried, and connections that are being made at once.
const MOST: usize = 10;
/// Addresses that an error tells of.
const TOLD: usize = 4;
/// What says most about a name of which no address is reached: the host is there, or the way to it.
const FURTHEST: [io::ErrorKind; 3] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::TimedOut,
];

/// The addresses of a name. A question that nobody answers is asked again, for the reason that connections are.
pub async fn lookup(name: impl ToSocketAddrs + Copy) -> io::Result<Vec<SocketAddr>> {
    let asking = race(&[()], move |()| async move {
        let found = lookup_host(name).await;
        found.map(Iterator::collect::<Vec<_>>)
    });
    asking.await.map_err(|errors| unreached(&[], errors))
}

/// A connection to the first of these that answers; no other address is dialled. Where all fail, the error tells of each address; of a
/// single one it is the system's. While one of them says nothing there is no error: whoever calls sets the limit, and does not learn
/// then what became of the others.
pub async fn connect(found: &[SocketAddr]) -> io::Result<TcpStream> {
    let addresses = ordered(found);
    let connected = race(&addresses, TcpStream::connect).await;
    connected.map_err(|errors| unreached(&addresses, errors))
}

/// At most [`MOST`], the families by turns, that of the first address first (RFC 8305 §4).
fn ordered(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let family = found.first().map(SocketAddr::is_ipv6);
    let (one, other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        (found.iter().copied()).partition(|address| Some(address.is_ipv6()) == family);
    let by_turns = (0..found.len()).flat_map(|nth| [one.get(nth), other.get(nth)]);
    let mut ordered = Vec::new();
    for address in by_turns.flatten() {
        if ordered.len() < MOST && !ordered.contains(address) {
            ordered.push(*address);
        }
    }
    ordered
}

/// What comes about first of all that `begin` makes; or the last error of each, in their order.
async fn race<A, T, F>(of: &[A], mut begin: impl FnMut(A) -> F) -> Result<T, Vec<io::Error>>
where
    A: Copy,
    F: Future<Output = io::Result<T>>,
{
    let mut turns = Turns::new(of.len(), Instant::now());
    let mut errors: Vec<Option<io::Error>> = of.iter().map(|_| None).collect();
    let mut tries = FuturesUnordered::new();
    loop {
        while tries.len() < MOST
            && let Some(nth) = turns.take(Instant::now())
        {
            let one = begin(of[nth]);
            tries.push(async move { (nth, one.await) });
        }
        tokio::select! {
            Some((nth, ended)) = tries.next() => match ended {
                Ok(done) => return Ok(done),
                Err(error) => {
                    errors[nth] = Some(error);
                    if turns.is_between_rounds() && tries.is_empty() {
                        break;
                    }
                    turns.failed(Instant::now());
                }
            },
            () = sleep_until(turns.due), if turns.are_left() && tries.len() < MOST => {}
            else => break,
        }
    }
    Err(errors.into_iter().flatten().collect())
}

/// Whose turn is when: one after the other, and all of them again for as long as somebody may still answer.
#[derive(Debug)]
struct Turns {
    all: usize,
    /// Rounds that are over.
    rounds: usize,
    /// Whose turn is next.
    nth: usize,
    /// When the present round began.
    began: Instant,
    /// When the next turn is.
    due: Instant,
}

impl Turns {
    fn new(all: usize, now: Instant) -> Self {
        Self {
            all,
            rounds: 0,
            nth: 0,
            began: now,
            due: now,
        }
    }

    fn are_left(&self) -> bool {
        self.all > 0 && self.rounds < ROUNDS
    }

    fn is_between_rounds(&self) -> bool {
        self.nth == 0
    }

    /// Whose turn is now.
    fn take(&mut self, now: Instant) -> Option<usize> {
        if !self.are_left() || now < self.due {
            return None;
        }
        let nth = self.nth;
        if nth == 0 {
            self.began = now;
        }
        self.nth += 1;
        self.due = now + NEXT;
        if self.nth == self.all {
            (self.rounds, self.nth) = (self.rounds + 1, 0);
            self.due = self.due.max(self.began + UNANSWERED);
        }
        Some(nth)
    }

    /// Within a round the next one does not wait for longer where one has failed.
    fn failed(&mut self, now: Instant) {
        if !self.is_between_rounds() {
            self.due = now;
        }
    }
}

/// One error for all; `errors` is in the order of `addresses`.
fn unreached(addresses: &[SocketAddr], mut errors: Vec<io::Error>) -> io::Error {
    if errors.len() == 1
        && let Some(only) = errors.pop()
    {
        return only;
    }
    let is_there = |kind: &io::ErrorKind| errors.iter().any(|error| error.kind() == *kind);
    let furthest = FURTHEST.into_iter().find(is_there);
    let Some(kind) = furthest.or_else(|| errors.first().map(io::Error::kind)) else {
        return io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    };
    let each = addresses.iter().zip(&errors).take(TOLD);
    let mut told: Vec<String> = each
        .map(|(address, error)| format!("{address}: {error}"))
        .collect();
    let more = errors.len().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    io::Error::new(kind, told.join("; "))
}

#[cfg(test)]
mod tests;
