//! How long a head of HTTP/1 may take. hyper measures from when it waits for one, and a client that asks for nothing keeps it
//! waiting, too: so its clock stands still until a byte of the head is there. How long nothing may be asked is [`room`]'s to say.
//!
//! [`room`]: super::room

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// Whether of a connection's next head a part was read that is not the whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Part(Arc<AtomicBool>);

impl Part {
    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, there: bool) {
        self.0.store(there, Ordering::Relaxed);
    }
}

/// hyper's clock for the heads of one connection.
pub(super) struct Clock(pub(super) Part);

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waits {
            part: self.0.clone(),
            limit: duration,
            until: None,
        })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// From when hyper waits for a head, and a part of it is there, whichever is later.
struct Waits {
    part: Part,
    limit: Duration,
    until: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Future for Waits {
    type Output = ();

    /// hyper asks whenever it has read all that there is: the first byte needs no waker but the connection's.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.until.is_none() && !this.part.is_there() {
            return Poll::Pending;
        }
        let limit = this.limit;
        let begins = || Box::pin(tokio::time::sleep(limit));
        this.until.get_or_insert_with(begins).as_mut().poll(cx)
    }
}

impl Sleep for Waits {}

#[cfg(test)]
mod tests;
