//! One call with a deadline of its own, and why it came to nothing.

use std::time::Duration;

use kube::core::Status;
use tokio::time::timeout;

/// For one call of whoever acts: what else there is to do waits for it.
pub(in crate::agent) const CALL: Duration = Duration::from_secs(15);

/// Why the API server did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum Refused {
    #[error("{}", .0.message)]
    Status(Box<Status>),
    #[error("the API server did not answer in {} s", CALL.as_secs())]
    Late,
    #[error("ask the API server")]
    Transport(#[source] kube::Error),
}

pub(in crate::agent) trait AtMost<T> {
    async fn await_at_most(self, limit: Duration) -> Result<T, Refused>;
}

impl<T, F: Future<Output = kube::Result<T>>> AtMost<T> for F {
    async fn await_at_most(self, limit: Duration) -> Result<T, Refused> {
        match timeout(limit, self).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Refused::of(error)),
            Err(_) => Err(Refused::Late),
        }
    }
}

impl Refused {
    pub(in crate::agent) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Status(status),
            error => Self::Transport(error),
        }
    }
}

/// Whether it was refused for want of a right: an admission's refusal is a 403, too, and names no user.
pub(in crate::agent) fn lacks_right(status: &Status) -> bool {
    status.code == 403 && status.message.contains(": User \"")
}
