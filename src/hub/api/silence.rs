//! What a call may wait for records that fall silent, by the kind of its route, and what its caller is told then.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;

use super::openapi::{Repeat, repeat};
use super::precondition;
use super::problem::{Problem, Slug};
use crate::hub::Hub;
use crate::hub::store::Store;
use crate::hub::store::patience::{self, Changed, Patience};

/// Who asks is looked up within this time, and what is only looked up.
const LOOK: Duration = Duration::from_secs(5);
/// A change waits for a free connection, a lock, and the disk.
const CHANGE: Duration = Duration::from_secs(15);
/// Tokens of an identity provider.
const GIVEN: Duration = Duration::from_secs(30);
/// As long as a statement may take.
const MUCH: Duration = Duration::from_mins(1);

/// Kinds of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    /// Reads so much that it may take long.
    Heavy,
    Write(Again),
    /// What an identity provider gave once only is stored if there is any way.
    Login,
    /// Judges silence itself, or asks the records for nothing.
    Own,
}

/// Whether a change can be asked for again as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Harmless,
    /// With an Idempotency-Key.
    ByKey,
    Look,
}

impl Class {
    /// Of a route as the router has it.
    fn of(method: &Method, path: &str) -> Self {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match path {
            "/v1/line" | "/openapi.json" => Self::Own,
            _ if path.starts_with("/clusters/") => Self::Own,
            "/v1/audit" | "/v1/audit/chain" => Self::Heavy,
            "/v1/bundles/{digest}" if reads => Self::Heavy,
            "/login/callback" | "/v1/login/token" => Self::Login,
            _ if reads => Self::Read,
            // The same key, the same content, the same report again change nothing; what is revoked or accepted stays so.
            "/v1/join"
            | "/v1/recover"
            | "/v1/bundles"
            | "/v1/catalog/ssh-keys"
            | "/v1/clusters/{name}/reports"
            | "/v1/clusters/{name}/deploy-keys"
            | "/v1/clusters/{name}/identity"
            | "/v1/clusters/{name}/revoke"
            | "/v1/clusters/{name}/labels"
            | "/v1/users/{name}/sessions/end"
            | "/v1/unknown-agents/accept"
            | "/v1/clusters/{name}/diagnoses" => Self::Write(Again::Harmless),
            // By its key a change is known again that is stored and was not confirmed.
            _ if *method == Method::POST
                && matches!(repeat(path), Some(Repeat::Known | Repeat::Answered)) =>
            {
                Self::Write(Again::ByKey)
            }
            _ if matches!(*method, Method::PUT | Method::DELETE) => Self::Write(Again::Harmless),
            _ => Self::Write(Again::Look),
        }
    }

    /// Until it is known who asks, and in all.
    fn patience(self) -> Option<Arc<Patience>> {
        let (first, whole) = match self {
            Self::Read => (LOOK, LOOK),
            Self::Write(_) => (LOOK, CHANGE),
            Self::Login => (GIVEN, GIVEN),
            Self::Heavy => (LOOK, MUCH),
            Self::Own => return None,
        };
        Some(Patience::new(first, whole))
    }
}

/// Carries a request out; one whose records fell silent has an answer in time, which says what became of it.
pub(super) async fn bounded(hub: &Hub, request: Request, next: Next) -> Response {
    if matches!(hub.store, Store::Sqlite(_)) {
        return next.run(request).await;
    }
    let path = request.extensions().get::<MatchedPath>();
    let class = path.map_or(Class::Own, |p| Class::of(request.method(), p.as_str()));
    let keyed = matches!(precondition::key(request.headers()), Ok(Some(_)));
    let Some(patience) = class.patience() else {
        return next.run(request).await;
    };
    let response = patience::within(&patience, next.run(request)).await;
    let problem = response.extensions().get::<Problem>();
    let away = problem.is_some_and(|problem| problem.slug == Slug::Unavailable);
    let again = match class {
        Class::Write(again) => again,
        Class::Login => Again::Look,
        Class::Read | Class::Heavy | Class::Own => return response,
    };
    let told = told(again, keyed, patience.changed(), patience.ran_out());
    told.filter(|_| away)
        .map_or(response, Problem::into_response)
}

/// What the caller of a change is told; None = what the handler says.
fn told(again: Again, keyed: bool, changed: Changed, ran_out: bool) -> Option<Problem> {
    let (slug, detail) = match changed {
        Changed::Nothing if !ran_out => return None,
        Changed::Nothing => {
            let detail = "the hub's database does not answer; nothing was changed";
            let next = "try again; if it stays, look at the hub's log and at the database";
            return Some(Problem::new(Slug::Unavailable, detail, next).retry_after(1));
        }
        Changed::Some => (
            Slug::OutcomeUnknown,
            "the hub's database did not answer any more after a part of the change was stored",
        ),
        Changed::Unknown => (
            Slug::OutcomeUnknown,
            "the hub's database did not say whether it stored the change: outcome unknown",
        ),
    };
    let harmless = match again {
        Again::Harmless => true,
        Again::ByKey => keyed,
        Again::Look => false,
    };
    Some(if harmless {
        let next = "repeat the call as it is: what is stored already stays as it is";
        Problem::new(slug, detail, next).retry_after(1)
    } else {
        Problem::new(slug, detail, "look whether it is done before you repeat it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::api::openapi::operations;

    #[test]
    fn only_streams_and_pages_that_ask_nothing_have_no_limit() {
        let class = |call: &str| {
            let (method, path) = call.split_once(' ').unwrap();
            Class::of(&method.to_uppercase().parse().unwrap(), path)
        };
        let calls =
            operations().map(|operation| format!("{} {}", operation.method, operation.path));
        let (mut own, mut heavy, mut look) = (Vec::new(), Vec::new(), Vec::new());
        for call in calls {
            match class(&call) {
                Class::Own => own.push(call),
                Class::Heavy => heavy.push(call),
                Class::Write(Again::Look) | Class::Login => look.push(call),
                Class::Read => assert!(call.starts_with("get "), "{call}"),
                Class::Write(_) => assert!(!call.starts_with("get "), "{call}"),
            }
        }
        assert_eq!(own, ["get /v1/line", "get /openapi.json"]);
        assert_eq!(
            heavy,
            [
                "get /v1/bundles/{digest}",
                "get /v1/audit",
                "get /v1/audit/chain"
            ]
        );
        assert_eq!(
            look,
            [
                "patch /v1/users/{name}",
                "post /v1/login/device",
                "post /v1/login/token",
                "post /v1/login/end",
                "post /v1/hub/notices/test",
            ]
        );
        assert_eq!(class("get /clusters/{name}/{*rest}"), Class::Own);
    }

    #[test]
    fn a_change_says_what_became_of_it() {
        let told = |again, keyed, changed, ran_out| {
            let told = told(again, keyed, changed, ran_out);
            told.map(|p| (p.slug.as_str(), p.next, p.retry_after))
        };
        let (look, repeat) = (
            "look whether it is done before you repeat it".to_owned(),
            "repeat the call as it is: what is stored already stays as it is".to_owned(),
        );
        let unknown = Some(("outcome-unknown", look, None));
        let again = Some(("outcome-unknown", repeat, Some(1)));
        for changed in [Changed::Some, Changed::Unknown] {
            assert_eq!(told(Again::Look, true, changed, true), unknown);
            assert_eq!(told(Again::ByKey, false, changed, true), unknown);
            assert_eq!(told(Again::ByKey, true, changed, true), again);
            assert_eq!(told(Again::Harmless, false, changed, false), again);
        }
        let nothing = told(Again::Look, false, Changed::Nothing, true);
        assert_eq!(
            nothing.map(|(slug, _, after)| (slug, after)),
            Some(("unavailable", Some(1)))
        );
        assert_eq!(told(Again::Look, false, Changed::Nothing, false), None);
    }
}
