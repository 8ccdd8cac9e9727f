//! Why a call came to nothing, and what that makes of a step.

use anyhow::anyhow;
use kube::core::Status;
use tracing::debug;

use super::{Refused, lacks_right};
use crate::agent::observe::Unread;
use crate::agent::plan::history::Outcome;

/// Why a list was not read. That an object is too large is said of that, not of the API server.
pub(super) fn unread(why: Unread) -> anyhow::Error {
    match why {
        Unread::Late(_) => anyhow!(Refused::Late),
        Unread::Kube(error) => anyhow!(Refused::of(error)),
        Unread::Large(_) => anyhow!(why),
    }
}

/// Whether no answer came. The next call would have none either, as a rule, and each is waited for.
pub(super) fn is_silent(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Refused>() {
        Some(Refused::Late | Refused::Transport(_)) => true,
        Some(Refused::Status(_)) | None => false,
    }
}

/// An object that the API server finds invalid is no better the next time (400, 422).
pub(super) fn failed(error: &anyhow::Error) -> Outcome {
    match error.downcast_ref::<Refused>() {
        Some(Refused::Status(status)) if matches!(status.code, 400 | 422) => {
            Outcome::Refused(brief(error))
        }
        Some(Refused::Status(status)) if lacks_right(status) => Outcome::Forbidden(brief(error)),
        Some(Refused::Status(status)) if !overwhelmed(status) => Outcome::Failed(brief(error)),
        Some(_) => Outcome::Unserved(brief(error)),
        None => Outcome::Failed(brief(error)),
    }
}

/// Whether the API server, or what is before it, has trouble of its own. An admission webhook's trouble is a 500, too,
/// and lasts for as long as the webhook.
fn overwhelmed(status: &Status) -> bool {
    (status.code >= 500 || status.code == 429) && !status.message.contains("webhook")
}

fn brief(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    debug!(error = %text, "step failed");
    text.chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: u16, message: &str) -> Outcome {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let refused = Refused::Status(Box::new(status));
        failed(&anyhow::Error::new(refused).context("apply x"))
    }

    #[test]
    fn an_answer_about_the_api_server_itself_is_none_about_the_object() {
        let said = |text: &str| format!("apply x: {text}");
        for (code, text) in [
            (500, "etcdserver: request timed out"),
            (503, "no healthy upstream"),
            (429, "too many requests"),
        ] {
            assert_eq!(outcome(code, text), Outcome::Unserved(said(text)));
        }
        let webhook = "Internal error occurred: failed calling webhook \"x\"";
        assert_eq!(outcome(500, webhook), Outcome::Failed(said(webhook)));
        assert_eq!(outcome(409, "x"), Outcome::Failed(said("x")));
        assert_eq!(outcome(422, "x"), Outcome::Refused(said("x")));
        let user = "forbidden: User \"x\" cannot";
        assert_eq!(outcome(403, user), Outcome::Forbidden(said(user)));
        let late = failed(&anyhow::Error::new(Refused::Late));
        let text = "the API server did not answer in 15 s";
        assert_eq!(late, Outcome::Unserved(text.to_owned()));
    }
}
