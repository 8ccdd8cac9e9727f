//! How a verb ends: the exit code, and the error printed once with its next action.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use http::StatusCode;

use super::output;
use crate::client;

/// The closed set of exit codes. Usage errors that clap finds are 2 as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Denied = 4,
    Conflict = 5,
    Timeout = 6,
    Unreachable = 7,
    Interrupted = 130,
}

/// An error of the command line itself, with its code and what to do next.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    pub code: Code,
    pub message: String,
    pub next: String,
}

impl Failure {
    pub(super) fn new(code: Code, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            next: next.into(),
        }
    }

    pub(super) fn interrupted() -> Self {
        Self::new(Code::Interrupted, "interrupted", "")
    }
}

/// Prints the error chain and the next action, and says how the process ends.
pub(super) fn report(result: Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if is_closed_pipe(&error) {
        // `linesman audit list | head` has what it wanted.
        return ExitCode::SUCCESS;
    }
    output::progress_line(&format!("error: {error:#}"));
    let next = next(&error);
    if !next.is_empty() {
        output::progress_line(&format!("next:  {next}"));
    }
    ExitCode::from(code(&error) as u8)
}

pub(super) fn code(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if is_session(cause) {
            continue;
        }
        if let Some(error) = cause.downcast_ref::<client::Error>() {
            return client_code(error);
        }
    }
    Code::Failed
}

fn next(error: &anyhow::Error) -> String {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.next.clone();
        }
        if is_session(cause) {
            continue;
        }
        if let Some(error) = cause.downcast_ref::<client::Error>() {
            return error.next();
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return of_system(error.kind()).to_owned();
        }
    }
    // A word that fits everything helps nobody.
    String::new()
}

/// A file that the command line names and that cannot be read: as wrong as one that holds something else. `doing` names it.
pub(super) fn unread(doing: &str, error: &io::Error) -> Failure {
    let next = of_system(error.kind());
    Failure::new(Code::Usage, format!("{doing}: {error}"), next)
}

/// What a person does about what the system refused, where that is known; the error's text names the file.
pub(super) fn of_system(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check how it is spelled, and that it is there",
        io::ErrorKind::PermissionDenied => "see whose it is and who may use it: ls -l",
        io::ErrorKind::IsADirectory => "name a file, not a directory",
        io::ErrorKind::NotADirectory => "check the directories that it names",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there",
        io::ErrorKind::ReadOnlyFilesystem => "name a place that can be written",
        io::ErrorKind::InvalidData => "give a text file in UTF-8",
        io::ErrorKind::AlreadyExists => "choose another name: something else has this one",
        _ => "",
    }
}

/// A renewal that failed: its cause says how the process ends.
fn is_session(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(client::Error::Session(_)))
}

fn client_code(error: &client::Error) -> Code {
    match error {
        client::Error::Address { .. } | client::Error::Ca(_) | client::Error::Tls(_) => Code::Usage,
        client::Error::Unreachable { .. } | client::Error::Gateway { .. } => Code::Unreachable,
        client::Error::Answer { .. } | client::Error::Session(_) => Code::Failed,
        // How a login that was begun ended; no command line was wrong.
        client::Error::Refused { problem, .. } if is_of_login(&problem.kind) => Code::Denied,
        client::Error::Refused { .. } => match error.status() {
            Some(StatusCode::BAD_REQUEST) => Code::Usage,
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Code::Denied,
            Some(StatusCode::NOT_FOUND | StatusCode::GONE) => Code::NotFound,
            Some(StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED) => Code::Conflict,
            _ => Code::Failed,
        },
    }
}

fn is_of_login(kind: &str) -> bool {
    let slug = kind.rsplit(':').next().unwrap_or_default();
    matches!(slug, "access-denied" | "expired-token")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error
        .downcast_ref::<output::Closed>()
        .is_some_and(|e| closed(&e.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::Context as _;

    use super::*;
    use crate::wire::api::Problem;

    fn refused(status: u16) -> anyhow::Error {
        let problem = Problem {
            kind: "urn:linesman:problem:x".to_owned(),
            title: String::new(),
            status,
            detail: "no".to_owned(),
            hop: "hub".to_owned(),
            next: "ask".to_owned(),
            request_id: "r".to_owned(),
            more: BTreeMap::new(),
        };
        client::Error::Refused {
            operation: "o".to_owned(),
            problem: Box::new(problem),
        }
        .into()
    }

    /// H59
    #[test]
    fn the_hubs_answers_become_exit_codes() {
        for (status, expected) in [
            (400, Code::Usage),
            (401, Code::Denied),
            (403, Code::Denied),
            (404, Code::NotFound),
            (409, Code::Conflict),
            (412, Code::Conflict),
            (422, Code::Failed),
            (500, Code::Failed),
        ] {
            assert_eq!(code(&refused(status)), expected, "{status}");
        }
        let wrapped = Err::<(), _>(refused(404))
            .context("show cluster")
            .unwrap_err();
        assert_eq!(
            (code(&wrapped), next(&wrapped)),
            (Code::NotFound, "ask".to_owned())
        );
        assert_eq!(code(&anyhow::anyhow!("other")), Code::Failed);
    }

    #[test]
    fn a_login_that_was_refused_is_no_wrong_command_line() {
        let client::Error::Refused {
            operation,
            mut problem,
        } = refused(400).downcast().unwrap()
        else {
            panic!("a refusal");
        };
        problem.kind = "urn:linesman:problem:access-denied".to_owned();
        let error = client::Error::Refused { operation, problem };
        assert_eq!(code(&error.into()), Code::Denied);
    }

    /// Every error of the system says what to do next, where that is known.
    #[test]
    fn what_the_system_refuses_has_a_next_action() {
        for kind in [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::AlreadyExists,
        ] {
            assert_ne!(of_system(kind), "", "{kind}");
            let error = Err::<(), _>(io::Error::from(kind))
                .context("write adopt.yaml")
                .unwrap_err();
            assert_eq!(
                (code(&error), next(&error)),
                (Code::Failed, of_system(kind).to_owned())
            );
            let given = unread("read the CA file ca.crt", &io::Error::from(kind));
            assert_eq!(
                (given.code, given.next.as_str()),
                (Code::Usage, of_system(kind))
            );
        }
        let strange = io::Error::from(io::ErrorKind::Other);
        for error in [anyhow::anyhow!("other"), strange.into()] {
            assert_eq!(next(&error), "");
        }
    }

    #[test]
    fn a_session_that_ended_meanwhile_says_so_itself() {
        let ended = Failure::new(Code::Denied, "the session has ended", "log in");
        let error = anyhow::Error::from(client::Error::Session(ended.into()));
        assert_eq!(
            (code(&error), next(&error), format!("{error:#}")),
            (
                Code::Denied,
                "log in".to_owned(),
                "renew the session: the session has ended".to_owned()
            )
        );
    }

    /// H59
    #[test]
    fn a_hub_that_cannot_be_reached_is_seven() {
        let cause = client::Cause::Refused("connection refused".to_owned());
        let error = client::Error::Unreachable {
            operation: "o".to_owned(),
            hub: "https://h".to_owned(),
            cause,
        };
        assert_eq!(code(&error.into()), Code::Unreachable);
    }
}
