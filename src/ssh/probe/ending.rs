//! What the end of a connection says of the key that was offered on it.

use std::sync::{Arc, Mutex};

use russh::Disconnect;
use russh::client::RemoteDisconnectInfo;

use crate::ssh::lsrefs::printable;

/// The host's own word of why it ends the connection, once it is there.
pub(super) type LastWords = Arc<Mutex<Option<RemoteDisconnectInfo>>>;

/// What became of an offered key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The host does not take it.
    Refused,
    /// The host said nothing of it; how the connection ended.
    None(String),
}

/// The answer that lies in how a connection ended before there was another.
pub(super) fn answer(
    end: &Result<(), russh::Error>,
    said: Option<&RemoteDisconnectInfo>,
) -> Answer {
    match (end, said) {
        // The client's own end after a refusal that leaves no other way to log in.
        (Err(russh::Error::NoAuthMethod), _) => Answer::Refused,
        (_, Some(said)) if refuses(said) => Answer::Refused,
        (_, Some(said)) if !said.message.is_empty() => {
            Answer::None(printable(said.message.as_bytes()))
        }
        (Err(error), None) => Answer::None(error.to_string()),
        (_, _) => Answer::None("no reason given".to_owned()),
    }
}

/// A host at the end of its patience says so in place of the last refusal: OpenSSH and Go's SSH in words, others by number
/// (RFC 4253, section 11.1). A key that was never registered gets no other answer where one try is all.
fn refuses(said: &RemoteDisconnectInfo) -> bool {
    let words = said.message.to_ascii_lowercase();
    matches!(said.reason_code, Disconnect::NoMoreAuthMethodsAvailable)
        || words.contains("too many authentication failures")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F26: a host that hangs up with too much to do has not refused the key.
    #[test]
    fn only_a_word_about_the_key_refuses_it() {
        let said = |reason_code, message: &str| {
            Some(RemoteDisconnectInfo {
                reason_code,
                message: message.to_owned(),
                lang_tag: String::new(),
            })
        };
        let none = |how: &str| Answer::None(how.to_owned());
        let many = "Too many authentication failures";
        let full = "too many\nconnections";
        for (end, said, expected) in [
            (Err(russh::Error::NoAuthMethod), None, Answer::Refused),
            (
                Ok(()),
                said(Disconnect::ProtocolError, many),
                Answer::Refused,
            ),
            (
                Ok(()),
                said(Disconnect::ProtocolError, &many.to_lowercase()),
                Answer::Refused,
            ),
            (
                Ok(()),
                said(Disconnect::NoMoreAuthMethodsAvailable, ""),
                Answer::Refused,
            ),
            (
                Ok(()),
                said(Disconnect::TooManyConnections, full),
                none("too many connections"),
            ),
            (
                Ok(()),
                said(Disconnect::ByApplication, ""),
                none("no reason given"),
            ),
            (Err(russh::Error::Disconnect), None, none("Disconnected")),
            (
                Err(russh::Error::ConnectionTimeout),
                None,
                none("Connection timeout"),
            ),
        ] {
            let words = format!("{end:?} {said:?}");
            assert_eq!(answer(&end, said.as_ref()), expected, "{words}");
        }
    }
}
