use super::*;

const GRANT: &str = "g1 user:ada * admin for=60";
const READ: &str = "g1 user:ada * view read for=60";
const EXEC: &str = "GET /api/v1/namespaces/a/pods/x/exec?command=sh";
const MAY_I: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const LOG: &str = "GET /api/v1/namespaces/a/pods/x/log?follow=true";
const PROXIED: &str = "GET /api/v1/namespaces/a/services/s/proxy/";
const TOKEN: &str = "POST /api/v1/namespaces/a/serviceaccounts/s/token";

const NOT_KUBE: &str = "the token's scopes do not reach into clusters";

/// How far the token reaches, the grant, the request, and: the mode that it goes in, or the refusal.
type Row = (
    Option<Mode>,
    &'static str,
    &'static str,
    Result<Mode, &'static str>,
);

const ROWS: &[Row] = &[
    (Some(Mode::Full), GRANT, LIST, Ok(Mode::Full)),
    (Some(Mode::Full), GRANT, DELETE, Ok(Mode::Full)),
    (Some(Mode::Full), GRANT, EXEC, Ok(Mode::Full)),
    // A token widens no grant.
    (Some(Mode::Full), READ, LIST, Ok(Mode::Read)),
    (Some(Mode::Read), GRANT, LIST, Ok(Mode::Read)),
    (Some(Mode::Read), READ, LIST, Ok(Mode::Read)),
    (Some(Mode::Read), GRANT, LOG, Ok(Mode::Read)),
    (Some(Mode::Read), GRANT, ALL_PODS, Ok(Mode::Read)),
    (Some(Mode::Read), GRANT, "GET /version", Ok(Mode::Read)),
    (Some(Mode::Read), GRANT, MAY_I, Ok(Mode::Read)),
    (
        Some(Mode::Read),
        GRANT,
        DELETE,
        Err("the token has the scope kube-read, and 'delete pods' is more than reading"),
    ),
    (
        Some(Mode::Read),
        GRANT,
        EXEC,
        Err("the token has the scope kube-read, and 'get pods/exec' is more than reading"),
    ),
    (
        Some(Mode::Read),
        GRANT,
        PROXIED,
        Err("the token has the scope kube-read, and 'get services/proxy' is more than reading"),
    ),
    (
        Some(Mode::Read),
        GRANT,
        TOKEN,
        Err(
            "the token has the scope kube-read, and 'create serviceaccounts/token' is more than reading",
        ),
    ),
    (None, GRANT, LIST, Err(NOT_KUBE)),
    (None, GRANT, DELETE, Err(NOT_KUBE)),
    (None, GRANT, EXEC, Err(NOT_KUBE)),
    (None, GRANT, MAY_I, Err(NOT_KUBE)),
    (None, GRANT, "GET /version", Err(NOT_KUBE)),
];

/// A token's scopes narrow what its user's grants allow, and change nothing else of it.
#[test]
fn a_token_takes_away_and_adds_nothing() {
    for (token, held, request, expected) in ROWS {
        let row = format!("{token:?} {held} {request}");
        let allowed = asked(&[held], request).unwrap();
        let narrowed = narrow(allowed.clone(), *token, &info(request));
        match (narrowed, expected) {
            (Ok(narrowed), Ok(mode)) => {
                let subject = Impersonation {
                    mode: *mode,
                    ..allowed.subject.clone()
                };
                assert_eq!(narrowed, Allowed { subject, ..allowed }, "{row}");
            }
            (Err(denied), Err(why)) => {
                assert_eq!(denied.reason, *why, "{row}");
                let next = match token {
                    Some(_) => "use a token with the scope kube",
                    None => "use a token with the scope kube or kube-read",
                };
                assert_eq!((denied.rule, &*denied.next), ("NoGrant", next), "{row}");
            }
            (narrowed, _) => panic!("{row}: {narrowed:?}"),
        }
    }
}
