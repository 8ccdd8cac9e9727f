//! What flags of the hub may be, and what it says where it cannot start.

use std::path::Path;
use std::time::Duration;

use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::hub::serve::CannotStart;
use crate::hub::store::StoreError;
use crate::hub::{chain_of, image};

/// Agents that have no line give a sign of life every 10 s; of two of these, one may be lost.
const LEAST_SILENCE: Duration = Duration::from_secs(20);

/// The store's refusals end with what to do, where that is known: `…; stop it first`. `data` has its file, where that is the hub's own.
pub(super) fn refused(error: anyhow::Error, data: &Path) -> anyhow::Error {
    if let Some(CannotStart { what, next }) = error.downcast_ref() {
        return Failure::new(Code::Failed, what, next).into();
    }
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::Refused(why)) => {
            let (what, next) = why.split_once("; ").unwrap_or((why, ""));
            Failure::new(Code::Failed, what, next).into()
        }
        Some(of_disk) if of_disk.is_of_disk() => {
            let data = data.display();
            let next = format!("the disk of {data} is full or failing; see: df -h {data}");
            Failure::new(Code::Failed, chain_of(of_disk), next).into()
        }
        Some(_) | None => error,
    }
}

/// An image's name.
pub(super) fn agent_image(text: &str) -> Result<String, String> {
    match image::pin(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("it is no image; write registry.example.org/linesman-agent:0.1.0".to_owned()),
    }
}

/// Longer than a moment.
pub(super) fn offline_after(text: &str) -> Result<Duration, String> {
    let why = "agents give a sign of life every 10 s";
    duration::at_least(text, LEAST_SILENCE, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_store_ends_with_what_helps_or_with_nothing() {
        for (why, what, next) in [
            ("it is held; stop it first", "it is held", "stop it first"),
            ("it is held", "it is held", ""),
        ] {
            let error = StoreError::Refused(why.to_owned()).into();
            let failure = refused(error, Path::new("/d")).downcast::<Failure>();
            let expected = Failure::new(Code::Failed, what, next);
            assert_eq!(failure.unwrap(), expected);
        }
    }
}
