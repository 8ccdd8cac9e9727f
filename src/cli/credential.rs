//! `linesman credential`: kubectl's exec credential plugin. It reads one file and prints; network and runtime only
//! where the session has to be renewed.

use anyhow::Result;
use serde_json::json;
use time::OffsetDateTime;

use super::connect::{Access, Connect, not_logged_in};
use super::exit::{Code, Failure};
use super::output::emit;
use crate::clock;

/// kubectl must ask again before the hub refuses.
const EARLY: time::Duration = time::Duration::seconds(30);

const EXAMPLES: &str = "\
Examples:
  linesman credential --hub https://hub.example.org      # what kubectl runs; see: linesman kubeconfig";

/// kubectl reads a failing plugin's stderr, so the message says what to run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    connect: Connect,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let access = args.connect.found().map_err(denied)?;
    let access = if access.renewable {
        super::briefly(args.connect.access()).map_err(renewal)?
    } else {
        access
    };
    emit(&credential(&access, clock::now())?)
}

/// The `ExecCredential` (client.authentication.k8s.io/v1) of a session that is still good.
fn credential(access: &Access, now: OffsetDateTime) -> Result<String, Failure> {
    let Some(token) = &access.token else {
        return Err(failed(not_logged_in(&access.hub)));
    };
    let ends = access.expires_at.as_deref().and_then(clock::parse_rfc3339);
    if ends.is_some_and(|at| at - EARLY <= now) {
        return Err(failed(Failure::new(
            Code::Denied,
            format!("the session of {} has expired", access.hub),
            format!("run: linesman login {}", access.hub),
        )));
    }
    let mut status = json!({ "token": token.expose() });
    if let Some(at) = ends {
        // RFC 3339 in whole seconds is what client-go's metav1.Time reads.
        let at = (at - EARLY).replace_nanosecond(0).unwrap_or(at);
        status["expirationTimestamp"] = json!(clock::rfc3339(at).replace(".000Z", "Z"));
    }
    let document = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    });
    Ok(format!("{document}\n"))
}

/// A wrong flag is one all the same.
fn denied(error: anyhow::Error) -> anyhow::Error {
    let failure = error.downcast_ref::<Failure>();
    if failure.is_some_and(|failure| failure.code == Code::Denied) {
        renewal(error)
    } else {
        error
    }
}

/// kubectl knows no code of ours. Ctrl-C has the shell's.
fn renewal(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) if failure.code == Code::Interrupted => failure.into(),
        Ok(failure) => failed(failure).into(),
        Err(other) => other,
    }
}

/// kubectl shows a plugin's failure as it is; 1 is the code that its own documentation names.
fn failed(failure: Failure) -> Failure {
    Failure {
        code: Code::Failed,
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn access(expires_at: Option<&str>) -> Access {
        Access {
            hub: "https://hub".to_owned(),
            ca: None,
            token: Some(Secret::new("lmt1.a.b".to_owned())),
            expires_at: expires_at.map(str::to_owned),
            token_file: None,
            renewable: false,
            renews: false,
        }
    }

    #[test]
    fn a_good_session_becomes_an_exec_credential() {
        let now = clock::parse_rfc3339("2026-01-01T00:00:00Z").unwrap();
        let text = credential(&access(Some("2026-01-01T01:00:00.500Z")), now).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "kind": "ExecCredential",
                "status": { "token": "lmt1.a.b", "expirationTimestamp": "2026-01-01T00:59:30Z" },
            })
        );
        let text = credential(&access(None), now).unwrap();
        assert!(!text.contains("expirationTimestamp"));
    }

    #[test]
    fn an_old_or_missing_session_says_what_to_run() {
        let now = clock::parse_rfc3339("2026-01-01T00:59:31Z").unwrap();
        let failure = credential(&access(Some("2026-01-01T01:00:00Z")), now).unwrap_err();
        assert_eq!(failure.code, Code::Failed);
        assert_eq!(failure.next, "run: linesman login https://hub");
        let nobody = Access {
            token: None,
            ..access(None)
        };
        assert_eq!(
            credential(&nobody, now).unwrap_err().message,
            "no session for https://hub"
        );
    }
}
