//! One call to the hub, before it is sent.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

/// The parts of a call that differ.
pub(super) struct Call<'a> {
    pub(super) operation: &'a str,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
    pub(super) timeout: Duration,
    /// Sending it twice has the effect of sending it once.
    pub(super) repeatable: bool,
}

impl Call<'_> {
    /// The hub answers when there is something to tell.
    pub(super) fn is_poll(&self) -> bool {
        let mut query = self.url.query_pairs();
        query.any(|(key, value)| key == "wait" && value != "0")
    }
}
