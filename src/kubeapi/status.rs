//! Refusals as Kubernetes `Status` objects: hop, reason, next action, request id.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
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

    /// The `Status` as a response; the code of metav1.Status goes with a reason that client-go knows.
    pub fn response(&self, request_id: &str) -> Response<Bytes> {
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
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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

/// The `metav1.StatusReason` of a code, empty where Kubernetes has none.
fn status_reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
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
}
