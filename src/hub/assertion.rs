//! What the hub asserts of one request on one line. Pure: the signer, ids and the time come in.

use std::collections::BTreeSet;

use http::Method;
use time::OffsetDateTime;

use crate::assertion::{self, Actor, ApiMeta, AssertionError, Claims, LIFETIME, Mode};
use crate::kubeapi::trace::TraceParent;

/// The request as it leaves on a stream.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub hub_id: &'a str,
    pub cluster_id: &'a str,
    /// The epoch of the line that it is sent on.
    pub epoch: u64,
    pub id: &'a str,
    /// Counts the tries of one request, from 0: each has an assertion of its own.
    pub attempt: u32,
    pub method: &'a Method,
    /// Path and query without the cluster's prefix, the bytes that are sent.
    pub target: &'a str,
    /// The user's address.
    pub ip: &'a str,
    pub trace: TraceParent,
}

/// Whom the request acts as.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// `linesman:<name>`
    pub user: &'a str,
    /// `linesman:<group>` each.
    pub groups: &'a [String],
    /// `linesman:<name>` of who asked, where that is someone else.
    pub actor: Option<&'a str>,
    pub mode: Mode,
    /// None = all.
    pub namespaces: Option<&'a BTreeSet<String>>,
}

/// The stream's meta with a fresh assertion; `kid` names the key that `sign` uses.
pub fn issue(
    request: &Request<'_>,
    subject: &Subject<'_>,
    now: OffsetDateTime,
    kid: &str,
    sign: impl FnOnce(&[u8]) -> [u8; 64],
) -> Result<ApiMeta, AssertionError> {
    let iat = now.unix_timestamp();
    let jti = match request.attempt {
        0 => request.id.to_owned(),
        n => format!("{}.{n}", request.id),
    };
    let claims = Claims {
        iss: request.hub_id.to_owned(),
        aud: request.cluster_id.to_owned(),
        sub: subject.user.to_owned(),
        grp: subject.groups.to_vec(),
        act: subject.actor.map(|sub| Actor {
            sub: sub.to_owned(),
        }),
        jti,
        epoch: request.epoch,
        iat,
        exp: iat + LIFETIME,
        h: assertion::binding(request.method.as_str(), request.target),
        ip: request.ip.to_owned(),
        mode: subject.mode,
        ns: subject.namespaces.cloned(),
    };
    let assertion = assertion::sign(&claims, kid, sign)?;
    Ok(ApiMeta {
        id: request.id.to_owned(),
        epoch: request.epoch,
        traceparent: Some(request.trace.to_string()),
        assertion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertion::Expected;
    use crate::keys::KeyPair;
    use crate::wire::api::HubKey;

    #[test]
    fn what_is_issued_holds_for_that_line_and_request_only() {
        let pair = KeyPair::from_seed(&[9; 32]);
        let keyset = [HubKey {
            kid: "k".to_owned(),
            key: pair.public().to_base64(),
            not_after: None,
        }];
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let request = Request {
            hub_id: "hub",
            cluster_id: "c1",
            epoch: 4,
            id: "r1",
            attempt: 1,
            method: &Method::GET,
            target: "/api/v1/pods",
            ip: "10.0.0.1",
            trace: TraceParent::begin([1; 16], [1; 8]),
        };
        let groups = ["linesman:admin".to_owned()];
        let subject = Subject {
            user: "linesman:ada",
            groups: &groups,
            actor: Some("linesman:eve"),
            mode: Mode::Full,
            namespaces: None,
        };
        let meta = issue(&request, &subject, now, "k", |input| pair.sign(input)).unwrap();
        let trace = "00-01010101010101010101010101010101-0101010101010101-00";
        assert_eq!(meta.traceparent.as_deref(), Some(trace));
        let expected = Expected {
            hub: "hub",
            cluster: "c1",
            epoch: 4,
            method: "GET",
            target: "/api/v1/pods",
            now: now.unix_timestamp(),
        };
        let claims = assertion::verify(&meta.assertion, &keyset, &expected).unwrap();
        assert_eq!((claims.jti.as_str(), claims.request_id()), ("r1.1", "r1"));
        let actor = claims.act.map(|actor| actor.sub);
        assert_eq!(
            (claims.sub.as_str(), claims.grp, actor.as_deref()),
            ("linesman:ada", groups.to_vec(), Some("linesman:eve"))
        );
        assert!(
            assertion::verify(
                &meta.assertion,
                &keyset,
                &Expected {
                    epoch: 5,
                    ..expected
                }
            )
            .is_err()
        );
    }
}
