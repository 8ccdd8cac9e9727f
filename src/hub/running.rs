//! Kubernetes requests that run now, by what lets them: when a token, a user or a grant ends, so do they.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// What a request runs by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct By {
    pub user_id: String,
    pub token_id: String,
    /// The ids of the grants that cover it.
    pub grants: Vec<String>,
    /// When the first of them ends by itself.
    pub until: Option<OffsetDateTime>,
}

/// What was taken away.
#[derive(Debug, Clone, Copy)]
pub enum Gone<'a> {
    User(&'a str),
    Token(&'a str),
    Grant(&'a str),
}

/// All of them. Bounded by the places that a request needs before it comes here.
#[derive(Default)]
pub struct Requests {
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    taken: HashMap<u64, (By, CancellationToken)>,
}

/// One of them, until it is dropped.
pub struct Seat {
    requests: Arc<Requests>,
    number: u64,
    cut: CancellationToken,
    until: Option<OffsetDateTime>,
}

impl Requests {
    pub fn enter(self: &Arc<Self>, by: By) -> Seat {
        let cut = CancellationToken::new();
        let until = by.until;
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.next += 1;
        let number = seats.next;
        seats.taken.insert(number, (by, cut.clone()));
        drop(seats);
        Seat {
            requests: self.clone(),
            number,
            cut,
            until,
        }
    }

    /// Ends what ran by this; gives how many that are.
    pub fn end(&self, gone: Gone<'_>) -> usize {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = |by: &By| match gone {
            Gone::User(id) => by.user_id == id,
            Gone::Token(id) => by.token_id == id,
            Gone::Grant(id) => by.grants.iter().any(|g| g == id),
        };
        let cut = seats.taken.values().filter(|(by, _)| hit(by));
        cut.map(|(_, cut)| cut.cancel()).count()
    }
}

impl Seat {
    /// Ready when the request has to end.
    pub fn over(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (cut, until) = (self.cut.clone(), self.until);
        Box::pin(async move {
            let left = until.map(|end| (end - clock::now()).try_into().unwrap_or_default());
            match left {
                Some(left) => tokio::select! {
                    () = cut.cancelled() => {}
                    () = tokio::time::sleep(left) => {}
                },
                None => cut.cancelled().await,
            }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self
            .requests
            .seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seats.taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn by(user: &str, token: &str, grant: &str) -> By {
        By {
            user_id: user.to_owned(),
            token_id: token.to_owned(),
            grants: vec![grant.to_owned()],
            until: None,
        }
    }

    #[tokio::test]
    async fn requests_end_with_what_they_run_by() {
        let requests = Arc::new(Requests::default());
        let seats = [
            by("ada", "t1", "g1"),
            by("ada", "t2", "g2"),
            by("bob", "t3", "g2"),
        ]
        .map(|by| requests.enter(by));
        let over = || {
            seats
                .each_ref()
                .map(|seat| seat.over().now_or_never().is_some())
        };
        assert_eq!(
            (requests.end(Gone::Token("t1")), over()),
            (1, [true, false, false])
        );
        assert_eq!(
            (requests.end(Gone::Grant("g2")), over()),
            (2, [true, true, true])
        );
        assert_eq!(
            (
                requests.end(Gone::User("ada")),
                requests.end(Gone::User("eve"))
            ),
            (2, 0)
        );
        drop(seats);
        assert!(requests.seats.lock().unwrap().taken.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_with_its_grant() {
        let requests = Arc::new(Requests::default());
        let until = Some(clock::now() + time::Duration::seconds(30));
        let seat = requests.enter(By {
            until,
            ..By::default()
        });
        assert!(seat.over().now_or_never().is_none());
        seat.over().await;
    }
}
