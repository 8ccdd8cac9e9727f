//! The end of the log of a controller's container that ended, without what may be a secret. A log is free text: what looks like a
//! password, a token or a key goes, and rather a word too many than one too few.

use super::{MAX_ALL, fits, safe};
use crate::agent::engine::is_workload;
use crate::agent::plan::Observed;
use crate::bundle::ObjectId;

/// Lines that are asked for.
pub const LINES: i64 = 40;
/// Bytes of the answer.
pub const BYTES: i64 = 64 << 10;
/// What stands before a secret.
const NAMES: [&str; 10] = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "private",
];
/// Words of that length that are no name, no number and no digest are taken for a key.
const LONG: usize = 32;
const HIDDEN: &str = "***";

/// A Pod of a controller in which a container ended.
pub fn crashed<'a>(observed: &'a Observed, id: &ObjectId) -> Option<&'a str> {
    let mut pods = observed.pods.iter();
    let ended =
        pods.find(|(_, pod)| is_workload(id.kind) && pod.app == id.name && pod.ended.is_some());
    ended.map(|(name, _)| name.as_str())
}

/// The last lines that there is room for, in their order.
pub fn told(text: &str) -> Vec<String> {
    let mut key = false;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = line.contains("-----BEGIN");
        if begins || key {
            if begins {
                lines.push(HIDDEN.to_owned());
            }
            key = !line.contains("-----END");
            continue;
        }
        lines.push(safe(&hidden(line)));
    }
    let lines = lines.into_iter().filter(|line| !line.trim().is_empty());
    let mut room = MAX_ALL;
    let last = lines.rev().take(usize::try_from(LINES).unwrap_or(0));
    let mut last: Vec<String> = last.take_while(|line| fits(&mut room, line)).collect();
    last.reverse();
    last
}

/// A line without the words that may be secret.
fn hidden(line: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`,;&?(){}[]<>".contains(c);
    let (mut shown, mut follows) = (String::new(), false);
    for word in line.split_inclusive(ends) {
        let (bare, end) = match word.char_indices().last() {
            Some((at, c)) if ends(c) => word.split_at(at),
            Some(_) | None => (word, ""),
        };
        let (name, value) = match bare.split_once(['=', ':']) {
            Some((name, value)) => (name, Some(value)),
            None => (bare, None),
        };
        let small = bare.to_ascii_lowercase();
        let scheme = matches!(small.as_str(), "bearer" | "basic");
        let names = name_of_secret(name);
        match value {
            // An URL's own word is looked at by its host.
            Some(value) if names && !value.is_empty() && !value.starts_with("//") => {
                shown.extend([name, "=", HIDDEN]);
                follows = scheme_of(value);
            }
            _ if bare.is_empty() || matches!(bare, ":" | "=") => shown.push_str(bare),
            _ if follows && !scheme => {
                shown.push_str(HIDDEN);
                follows = false;
            }
            Some(value) if is_key(value) => shown.extend([name, "=", HIDDEN]),
            _ if is_key(bare) => shown.push_str(HIDDEN),
            value => {
                shown.push_str(bare);
                // `"token": "x"`, `Authorization: Bearer x`, but no word of a sentence about tokens.
                let asks = value.is_some() || end.starts_with(['"', '\'', '=']);
                follows = scheme || names && asks;
            }
        }
        shown.push_str(end);
    }
    shown
}

fn scheme_of(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "bearer" | "basic")
}

fn name_of_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|secret| name.contains(secret))
}

/// Whether a word is made as a key is: long, of one piece, with digits, capitals and small letters. A digest has no capitals, and a
/// path has slashes at least now and then.
fn is_key(word: &str) -> bool {
    let piece = |c: char| c.is_ascii_alphanumeric() || "+=_-./~".contains(c);
    let has = |of: fn(&char) -> bool| word.chars().any(|c| of(&c));
    let jwt = word.starts_with("eyJ");
    let pieces = word.split(['/', '.']).map(str::len).max();
    let long = word.len() >= LONG && (jwt || pieces >= Some(LONG));
    let mixed =
        has(char::is_ascii_digit) && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    long && word.chars().all(piece) && mixed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::plan::Pod;
    use crate::bundle::Kind;

    #[test]
    fn the_log_of_a_pod_of_the_controller_of_which_a_container_ended_is_read() {
        let pod = |app: &str, ended: bool| Pod {
            app: app.to_owned(),
            ended: ended.then(|| (1, "Error".to_owned())),
            ..Pod::default()
        };
        let name = "source-controller";
        let pods = [
            ("a", pod("another", true)),
            ("b", pod(name, false)),
            ("c", pod(name, true)),
        ];
        let observed = Observed {
            pods: pods
                .map(|(name, pod)| (name.to_owned(), Arc::new(pod)))
                .into(),
            ..Observed::default()
        };
        for (kind, name, expected) in [
            (Kind::Deployment, name, Some("c")),
            (Kind::StatefulSet, name, Some("c")),
            (Kind::ServiceAccount, name, None),
            (Kind::Deployment, "kustomize-controller", None),
        ] {
            let id = ObjectId::new(kind, "flux-system", name);
            assert_eq!(crashed(&observed, &id), expected, "{kind} {name}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_told() {
        let key = "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyMTIz";
        let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlMTIz";
        for (line, expected) in [
            (
                "panic: runtime error: index out of range [3] with length 2".to_owned(),
                "panic: runtime error: index out of range [3] with length 2",
            ),
            (
                "fetch https://git:hunter2@git.test/a.git: denied".to_owned(),
                "fetch https://git:***@git.test/a.git: denied",
            ),
            ("password=hunter2 user=a".to_owned(), "password=*** user=a"),
            (
                r#"{"level":"error","token":"hunter2","n":1}"#.to_owned(),
                r#"{"level":"error","token":"***","n":1}"#,
            ),
            (
                r#"{"clientSecret": "hunter2", "user": "a"}"#.to_owned(),
                r#"{"clientSecret": "***", "user": "a"}"#,
            ),
            (
                "Authorization: Bearer hunter2".to_owned(),
                "Authorization: Bearer ***",
            ),
            (
                "authorization=Bearer hunter2 sent".to_owned(),
                "authorization=*** *** sent",
            ),
            ("X-Api-Key: hunter2".to_owned(), "X-Api-Key: ***"),
            (
                "header Basic hunter2 sent".to_owned(),
                "header Basic *** sent",
            ),
            (format!("got {key} back"), "got *** back"),
            (format!("got x={key}"), "got x=***"),
            (format!("jwt {jwt}"), "jwt ***"),
            (
                "revision main@sha1:3f2a9c0d1e3f2a9c0d1e3f2a9c0d1e3f2a9c0d1e".to_owned(),
                "revision main@sha1:3f2a9c0d1e3f2a9c0d1e3f2a9c0d1e3f2a9c0d1e",
            ),
            (
                "github.com/fluxcd/source-controller/internal/controller.Reconcile".to_owned(),
                "github.com/fluxcd/source-controller/internal/controller.Reconcile",
            ),
            (
                "k8s.io/client-go/tools/cache.Reflector2/internal/Handler.go".to_owned(),
                "k8s.io/client-go/tools/cache.Reflector2/internal/Handler.go",
            ),
            (
                "worker Http2Server closed".to_owned(),
                "worker Http2Server closed",
            ),
        ] {
            assert_eq!(told(&line), [expected], "{line}");
        }
        let pem = "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza\n-----END OPENSSH PRIVATE KEY-----\nb";
        assert_eq!(told(pem), ["a", "***", "b"]);
    }

    #[test]
    fn the_last_lines_are_kept_and_no_more_than_fits() {
        let all: Vec<String> = (0..60).map(|n| format!("line {n}")).collect();
        assert_eq!(told(&all.join("\n")), all[20..]);
        let long: Vec<String> = (0..60)
            .map(|n| format!("{n} {}", "é".repeat(400)))
            .collect();
        let told = told(&long.join("\n\n"));
        assert!(told.iter().map(String::len).sum::<usize>() <= MAX_ALL);
        assert_eq!(told, long[60 - told.len()..]);
        assert!(told.len() > 3, "{}", told.len());
    }
}
