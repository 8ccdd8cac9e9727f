//! Bodies of callers whom nobody knows yet: who they are is said in the body, or signed with it. Anybody can send them, many at once
//! and slowly, so all of them together hold so much at most. Where that is full, a body that is still being sent gives way: the
//! oldest of the address whose bodies hold the most.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::problem::{Problem, Slug};
use super::{body, read_json, remote};
use crate::address;
use crate::hub::Hub;

/// What all of them may hold.
const MOST: usize = 64 << 20;
/// What a login is asked with: a code, or a token.
pub(super) const LITTLE: usize = 4 << 10;

/// What is held of such bodies now. Cheap to clone.
#[derive(Clone)]
pub struct Strangers {
    most: usize,
    held: Arc<Mutex<Held>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self::new(MOST)
    }
}

#[derive(Default)]
struct Held {
    /// The next number: who has a lower one came earlier.
    next: u64,
    bytes: usize,
    of: HashMap<String, Share>,
}

/// The bodies of one address, by their numbers.
#[derive(Default)]
struct Share {
    bytes: usize,
    /// Those of which something has come, each with what ends it.
    coming: BTreeMap<u64, (usize, CancellationToken)>,
    /// Those that are whole, until it is known whose they are.
    whole: BTreeMap<u64, usize>,
}

/// The place of one body, given back on drop.
pub(super) struct Place {
    strangers: Strangers,
    address: String,
    number: u64,
    gives_way: CancellationToken,
}

impl Strangers {
    fn new(most: usize) -> Self {
        Self {
            most,
            held: Arc::default(),
        }
    }

    /// Reads a whole body of at most `max` bytes, which somebody at `remote` sends. It counts as long as the place is kept: until it is
    /// known who sent it, or they are refused.
    pub(super) async fn read(
        &self,
        remote: &str,
        content: Body,
        max: usize,
    ) -> Result<(Bytes, Arc<Place>), Problem> {
        let place = Arc::new(self.place(remote));
        let counts = place.clone();
        let content = content.map_frame(move |frame| {
            counts.takes(frame.data_ref().map_or(0, Bytes::len));
            frame
        });
        let read = tokio::select! {
            biased;
            () = place.gives_way.cancelled() => Err(full()),
            read = body(Body::new(content), max) => read,
        };
        let bytes = read?;
        if !place.complete() {
            return Err(full());
        }
        Ok((bytes, place))
    }

    fn place(&self, remote: &str) -> Place {
        let mut held = self.lock();
        held.next += 1;
        Place {
            strangers: self.clone(),
            address: address::of(remote),
            number: held.next,
            gives_way: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// So much more of the body has come.
    fn takes(&self, bytes: usize) {
        let mut held = self.strangers.lock();
        // One that gave way is not read any more.
        if bytes > 0 && !self.gives_way.is_cancelled() {
            held.add(self, bytes);
            held.make_room(self.strangers.most);
        }
    }

    /// All of it has come; false = it had to give way.
    fn complete(&self) -> bool {
        let mut held = self.strangers.lock();
        let share = held.of.get_mut(&self.address);
        if let Some(share) = share
            && let Some((bytes, _)) = share.coming.remove(&self.number)
        {
            share.whole.insert(self.number, bytes);
        }
        !self.gives_way.is_cancelled()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.lock().remove(&self.address, self.number);
    }
}

impl Held {
    fn add(&mut self, place: &Place, bytes: usize) {
        let share = self.of.entry(place.address.clone()).or_default();
        let coming = share.coming.entry(place.number);
        coming.or_insert_with(|| (0, place.gives_way.clone())).0 += bytes;
        share.bytes += bytes;
        self.bytes += bytes;
    }

    fn make_room(&mut self, most: usize) {
        while self.bytes > most {
            let shares = self.of.values_mut();
            let sending = shares.filter(|share| !share.coming.is_empty());
            let Some(share) = sending.max_by_key(|share| share.bytes) else {
                return;
            };
            let Some((_, (bytes, gives_way))) = share.coming.pop_first() else {
                return;
            };
            share.bytes -= bytes;
            self.bytes -= bytes;
            gives_way.cancel();
        }
    }

    fn remove(&mut self, address: &str, number: u64) {
        let Some(share) = self.of.get_mut(address) else {
            return;
        };
        let coming = share.coming.remove(&number).map(|(bytes, _)| bytes);
        let whole = share.whole.remove(&number);
        let bytes = coming.or(whole).unwrap_or_default();
        share.bytes -= bytes;
        self.bytes -= bytes;
        if share.coming.is_empty() && share.whole.is_empty() {
            self.of.remove(address);
        }
    }
}

fn full() -> Problem {
    let text = "the hub holds as much as it may of calls whose callers it does not know yet";
    Problem::new(Slug::Unavailable, text, "try again").retry_after(1)
}

/// The JSON body of a login: nobody knows yet who sends it.
pub struct StrangersBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Hub>> for StrangersBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, hub: &Arc<Hub>) -> Result<Self, Problem> {
        let (parts, content) = request.into_parts();
        let from = remote(&parts);
        let (bytes, _place) = hub.strangers.read(&from, content, LITTLE).await?;
        read_json(&bytes).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{StreamExt as _, stream};
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::{Instant, sleep};

    use super::*;

    /// So many bytes at once, and then nothing for ever.
    fn hanging(bytes: usize) -> Body {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b'x'; bytes]))]);
        Body::from_stream(first.chain(stream::pending()))
    }

    /// L40
    #[tokio::test(start_paused = true)]
    async fn a_little_body_by_drops_is_not_waited_for() {
        let (strangers, began) = (Strangers::default(), Instant::now());
        let drops = stream::unfold((), async |()| {
            sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>("x"), ()))
        });
        let read = strangers
            .read("192.0.2.1:5", Body::from_stream(drops), LITTLE)
            .await;
        assert_eq!(read.err().map(|told| told.slug), Some(Slug::BadRequest));
        assert!(began.elapsed() < Duration::from_secs(32));
        let held = strangers.lock();
        assert_eq!((held.bytes, held.of.len()), (0, 0));
    }

    /// L40
    #[tokio::test]
    async fn where_it_is_full_the_oldest_body_of_who_sends_the_most_gives_way() {
        let strangers = Strangers::new(100);
        let mut sending = JoinSet::new();
        let mut sum = 0;
        for (from, bytes) in [("a", 31), ("b", 40), ("a", 29)] {
            let own = strangers.clone();
            sending.spawn(async move {
                let read = own.read(from, hanging(bytes), 1_000).await;
                (bytes, read.err().map(|told| (told.slug, told.retry_after)))
            });
            sum += bytes;
            while strangers.lock().bytes < sum {
                yield_now().await;
            }
        }
        let (whole, place) = strangers
            .read("c", Body::from("0123456789"), 1_000)
            .await
            .unwrap();
        let refused = Some((Slug::Unavailable, Some(1)));
        assert_eq!(sending.join_next().await.unwrap().unwrap(), (31, refused));
        assert_eq!(
            (&whole[..], strangers.lock().bytes),
            (&b"0123456789"[..], 79)
        );
        // Whoever sends the most is the next one, and what is whole waits for its judge.
        let more = strangers.read("d", hanging(101), 1_000).await;
        assert_eq!(
            more.err().map(|told| (told.slug, told.retry_after)),
            refused
        );
        assert_eq!(strangers.lock().bytes, 79);
        drop(place);
        sending.shutdown().await;
        let held = strangers.lock();
        assert_eq!((held.bytes, held.of.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_above_its_bound_is_refused() {
        let strangers = Strangers::default();
        let read = strangers
            .read("192.0.2.1", hanging(LITTLE + 1), LITTLE)
            .await;
        assert_eq!(read.err().map(|told| told.slug), Some(Slug::BodyTooLarge));
    }
}
