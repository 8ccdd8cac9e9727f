//! The call by an Idempotency-Key that a task carries out. Each change that it stores marks the call, in the transaction of the
//! change: whoever repeats the call is told by that, and not by an answer that may be lost, whether anything was done.

use std::sync::Arc;

use time::OffsetDateTime;

use super::Call;

tokio::task_local! {
    static OWN: Arc<Begun>;
}

/// A call, and when it began: by that it is told from its own repetition.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) call: Call,
    pub(super) at: OffsetDateTime,
}

/// Does the call's work, which began at `at` as [`super::Store::begin_call`] has it.
pub async fn within<T>(call: Call, at: OffsetDateTime, work: impl Future<Output = T>) -> T {
    OWN.scope(Arc::new(Begun { call, at }), work).await
}

/// The call that this task carries out.
pub(super) fn own() -> Option<Arc<Begun>> {
    OWN.try_with(Clone::clone).ok()
}

/// The same work in a task of its own.
pub(super) async fn carried<T>(own: Option<Arc<Begun>>, work: impl Future<Output = T>) -> T {
    match own {
        Some(own) => OWN.scope(own, work).await,
        None => work.await,
    }
}
