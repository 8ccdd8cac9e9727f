//! The one select loop between WebSocket, timers, commands and the session.

use std::time::Duration;

use bytes::Bytes;

use super::{Ended, LineError, LineFacts, Stream};
use crate::wire::frame::{Class, Code, Kind};

/// Handle of a running line; clones mean the same line.
#[derive(Debug, Clone)]
pub struct Line {
    facts: LineFacts,
}

impl Line {
    /// Opens a stream. Sends nothing by itself but the OPEN frame; the peer's refusal comes as an error of
    /// the stream.
    #[expect(clippy::unused_async, reason = "opening may wait for room")]
    pub async fn open(&self, kind: Kind, class: Class, meta: Bytes) -> Result<Stream, LineError> {
        let _ = (kind, class, meta);
        Err(LineError::new(
            Code::Unavailable,
            "this build has no driver",
        ))
    }

    pub fn facts(&self) -> LineFacts {
        self.facts.clone()
    }

    /// Opens no more streams and asks the peer for the same; the line ends when it is empty or after `drain`.
    pub fn goaway(&self, code: Code, retry_after: Duration, drain: Duration, text: &str) {
        let _ = (code, retry_after, drain, text);
    }

    /// Completes when the line has ended.
    pub async fn closed(&self) -> Ended {
        std::future::pending().await
    }
}
