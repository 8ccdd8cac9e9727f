//! Refusals as Kubernetes `Status` objects: hop, reason, next action, request id.

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;

/// Where on its way a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    Hub,
    Line,
    Agent,
    ApiServer,
}

impl Hop {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Line => "line",
            Self::Agent => "agent",
            Self::ApiServer => "api server",
        }
    }
}

/// An answer that one of our hops gives instead of the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}; {next}", hop.as_str())]
pub struct Refusal {
    pub hop: Hop,
    pub code: StatusCode,
    /// One word in `CamelCase`: `details.causes[0].reason`.
    pub reason: &'static str,
    /// What is wrong, lower case, no full stop.
    pub what: String,
    /// What the user does next.
    pub next: String,
    /// Seconds. Only where no byte reached the agent: client-go repeats any verb on it.
    pub retry_after: Option<u32>,
    /// Whether the connection is closed, because its framing is not to be trusted.
    pub close: bool,
}

/// The answer's header by which the agent tells the hub that it refused the request itself, and by what rule. Neither the
/// API server's nor any other answer keeps it, and no user sees it.
pub const REFUSED: &str = "linesman-refused";

macro_rules! agents {
    ($($rule:literal)*) => { [$(($rule, concat!("agent:", $rule))),*] };
}

/// The rules by which an agent refuses, and as what they are counted.
const AGENTS: [(&str, &str); 28] = agents!(
    "Assertion" "BadAnswer" "BadPath" "Busy" "Clock" "Framing" "Groups" "Impersonation" "LineOff" "Method" "Name"
    "Namespace" "NoAnswer" "NodeProxy" "OutOfHours" "OwnNamespace" "Query" "ReadOnly" "Renewed" "Replay" "RequestId" "Scope" "Starting" "Token"
    "Unreachable" "UnknownPath" "Upgrade" "Withdrawn"
);

/// What an answer says of a refusal of the agent's, out of a closed set whatever the agent wrote.
pub fn agents_rule(headers: &HeaderMap) -> Option<&'static str> {
    let said = headers.get(REFUSED)?;
    let known = AGENTS.iter().find(|(rule, _)| said == rule);
    Some(known.map_or("agent:other", |(_, counted)| counted))
}

impl Refusal {
    pub fn new(hop: Hop, code: StatusCode, reason: &'static str, what: impl Into<String>) -> Self {
        Self {
            hop,
            code,
            reason,
            what: what.into(),
            next: String::new(),
            retry_after: None,
            close: false,
        }
    }

    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    #[must_use]
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }

    pub fn message(&self, request_id: &str) -> String {
        format!("{self} (request {request_id})")
    }

    /// The `Status` as a response.
    pub fn response(&self, request_id: &str) -> Response<Bytes> {
        self.answer(self.code, "application/json", self.status(request_id))
    }

    /// The response to a request of which [`asks_for_discovery`] is true. There client-go decodes no
    /// `Status`, shows text of a 403 and of a 5xx, and of a 503 or 504 nothing at all
    /// (`newUnstructuredResponseError` in client-go/rest/request.go, `NewGenericServerResponse` in
    /// apimachinery/pkg/api/errors/errors.go).
    pub fn words(&self, request_id: &str) -> Response<Bytes> {
        let code = match self.code {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                StatusCode::BAD_GATEWAY
            }
            code => code,
        };
        self.answer(code, "text/plain; charset=utf-8", self.message(request_id))
    }

    /// The code of metav1.Status goes with a reason that client-go knows.
    pub fn status(&self, request_id: &str) -> String {
        let body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message(request_id),
            "reason": status_reason(self.code),
            "details": {
                "causes": [{"reason": self.reason, "message": self.what, "field": self.hop.as_str()}],
                "retryAfterSeconds": self.retry_after.unwrap_or(0),
            },
            "code": self.code.as_u16(),
        });
        body.to_string()
    }

    fn answer(&self, code: StatusCode, kind: &'static str, body: String) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(
            "x-content-type-options",
            HeaderValue::from_static("nosniff"),
        );
        headers.insert("cache-control", HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Whether these are the headers of client-go's aggregated discovery, with which a kubectl command begins.
pub fn asks_for_discovery(asked: &HeaderMap) -> bool {
    let mut accepted = asked.get_all(ACCEPT).iter().map(HeaderValue::as_bytes);
    let wanted = b"g=apidiscovery.k8s.io";
    accepted.any(|value| value.windows(wanted.len()).any(|part| part == wanted))
}

/// The `metav1.StatusReason` of a code, empty where Kubernetes has none.
fn status_reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_hop_reason_next_action_and_request() {
        let refusal = Refusal::new(
            Hop::Line,
            StatusCode::SERVICE_UNAVAILABLE,
            "Offline",
            "cluster eu1 is offline",
        )
        .next("see 'linesman cluster show eu1'")
        .retry_after(1);
        let response = refusal.response("r1");
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body["message"],
            "line: cluster eu1 is offline; see 'linesman cluster show eu1' (request r1)"
        );
        assert_eq!(body["reason"], "ServiceUnavailable");
        assert_eq!(body["details"]["causes"][0]["field"], "line");
        assert_eq!(body["details"]["causes"][0]["reason"], "Offline");
        assert_eq!(body["code"], 503);
    }

    /// L11
    #[test]
    fn a_method_that_is_not_passed_on_has_kubernetes_reason() {
        let what = "the method is not passed on";
        let refusal = Refusal::new(Hop::Hub, StatusCode::METHOD_NOT_ALLOWED, "Method", what);
        let body: serde_json::Value = serde_json::from_str(&refusal.status("r1")).unwrap();
        assert_eq!(body["reason"], "MethodNotAllowed");
        assert_eq!(body["code"], 405);
    }

    /// L50: no label is what a peer wrote.
    #[test]
    fn an_agents_rule_is_one_of_a_closed_set() {
        let rule = |said: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REFUSED, HeaderValue::from_static(said));
            agents_rule(&headers)
        };
        assert_eq!(rule("ReadOnly"), Some("agent:ReadOnly"));
        for unknown in ["", "readonly", "ReadOnly ", "eu1", "agent:ReadOnly"] {
            assert_eq!(rule(unknown), Some("agent:other"), "{unknown}");
        }
        assert_eq!(agents_rule(&HeaderMap::new()), None);
    }

    #[test]
    fn no_retry_after_unless_asked() {
        let refusal = Refusal::new(
            Hop::Hub,
            StatusCode::BAD_REQUEST,
            "Smuggling",
            "two Host headers",
        )
        .close();
        let response = refusal.response("r1");
        assert!(!response.headers().contains_key(RETRY_AFTER));
        assert_eq!(response.headers()[CONNECTION], "close");
    }

    /// L11
    #[test]
    fn discovery_is_refused_in_words_and_with_a_code_that_kubectl_shows() {
        let mut asked = HeaderMap::new();
        assert!(!asks_for_discovery(&asked));
        asked.append(ACCEPT, HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"));
        assert!(asks_for_discovery(&asked));
        for (code, shown) in [(503, 502), (504, 502), (502, 502), (403, 403), (400, 400)] {
            let code = StatusCode::from_u16(code).unwrap();
            let refusal = Refusal::new(Hop::Line, code, "Offline", "cluster eu1 is offline")
                .next("see 'linesman cluster show eu1'");
            let response = refusal.words("r1");
            assert_eq!(response.status(), shown);
            assert_eq!(
                response.headers()[CONTENT_TYPE],
                "text/plain; charset=utf-8"
            );
            assert_eq!(
                response.body(),
                "line: cluster eu1 is offline; see 'linesman cluster show eu1' (request r1)"
            );
        }
    }
}
