//! A line that is dialled and not driven yet. What drives it is had only by telling of it, for the first stream that it brings may be
//! there at once, and is judged by the keys that were told last: those of the line before may be old ones.

use std::future::Future;

use tokio::sync::watch;

use super::LinkState;
use crate::tunnel::{Ended, Line};
use crate::wire::api::HubKey;

pub(super) struct Up<F: Future<Output = Ended>> {
    line: Line,
    run: F,
    keyset: Vec<HubKey>,
}

impl<F: Future<Output = Ended>> Up<F> {
    pub(super) fn new(line: Line, run: F, keyset: Vec<HubKey>) -> Self {
        Self { line, run, keyset }
    }

    /// Tells that the line is up and whose assertions are good on it; the line, and what drives it.
    pub(super) fn published(self, state: &watch::Sender<LinkState>) -> (Line, F) {
        let Self { line, run, keyset } = self;
        state.send_replace(LinkState::Up {
            line: line.clone(),
            keyset,
        });
        (line, run)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use time::OffsetDateTime;
    use tokio::io::duplex;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::Steady;
    use crate::tunnel::driver::{self, Identity, Socket};
    use crate::tunnel::session::{Config, Role};

    /// L17: the hub's key may have changed while there was no line, and a request that waited for one comes with it.
    #[tokio::test]
    async fn what_drives_a_line_is_had_only_once_its_keys_are_told() {
        let identity = Identity {
            epoch: 7,
            session: String::new(),
            remote: String::new(),
            instance: String::new(),
            since: OffsetDateTime::UNIX_EPOCH,
            hub_clock: Steady::new(0, Instant::now()),
            cap: None,
        };
        let socket = Socket::new(duplex(64).0, Role::Agent, Bytes::new());
        let (line, run) = driver::line(
            socket,
            Config::new(Role::Agent),
            identity,
            mpsc::channel(1).0,
            CancellationToken::new(),
        );
        let keyset = vec![HubKey {
            kid: "2".to_owned(),
            key: "the next one".to_owned(),
            not_after: None,
        }];
        let state = watch::Sender::new(LinkState::Down {
            since: OffsetDateTime::UNIX_EPOCH,
            cause: String::new(),
            attempt: 0,
            strange: false,
        });
        let (_line, _run) = Up::new(line, run, keyset.clone()).published(&state);
        let told = state.borrow().clone();
        let LinkState::Up { line, keyset: said } = told else {
            panic!("it is down");
        };
        assert_eq!((line.facts().epoch, said), (7, keyset));
    }
}
