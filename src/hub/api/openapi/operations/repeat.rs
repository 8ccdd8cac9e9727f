//! What becomes of a POST that comes twice, operation by operation.

use super::Operation;

/// What becomes of a POST that comes twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// By the same Idempotency-Key it is carried out once, and its answer comes again; where that is lost, it is told whether
    /// anything was done.
    Answered,
    /// The same without the answer, which holds a secret that is kept nowhere, or stands in the record itself: its handler
    /// knows the key.
    Known,
    /// It needs no key; why.
    Harmless(&'static str),
}

/// The same by the path of the route; None = it is none of the table's.
pub fn repeat(path: &str) -> Option<Repeat> {
    Some(match path {
        "/v1/clusters/{name}/rotate"
        | "/v1/clusters/{name}/revoke"
        | "/v1/clusters/{name}/pause"
        | "/v1/clusters/{name}/lift"
        | "/v1/unknown-agents/accept"
        | "/v1/heals/{id}/close"
        | "/v1/users"
        | "/v1/catalog/signers"
        | "/v1/catalog/signers/drop"
        | "/v1/githosts/{name}/host-keys"
        | "/v1/githosts/{name}/host-keys/drop"
        | "/v1/githosts/{name}/rotate-host-key" => Repeat::Answered,
        "/v1/clusters"
        | "/v1/clusters/{name}/join-tokens"
        | "/v1/grants"
        | "/v1/api-tokens"
        | "/v1/users/{name}/login-codes" => Repeat::Known,
        "/v1/bundles" => Repeat::Harmless("the same content is the same bundle"),
        "/v1/catalog/ssh-keys" => Repeat::Harmless("the same key of the same user is there once"),
        "/v1/join" => Repeat::Harmless("the same keys join once, and get the same answer"),
        "/v1/recover" => Repeat::Harmless("the same new identity is bound once"),
        "/v1/clusters/{name}/reports" => {
            Repeat::Harmless("a report is all that there is to say, and heals have ids")
        }
        "/v1/clusters/{name}/deploy-keys" => Repeat::Harmless("the same key is registered once"),
        "/v1/clusters/{name}/identity" => Repeat::Harmless("the same key is bound once"),
        "/v1/clusters/{name}/diagnoses" => Repeat::Harmless("a question has one answer"),
        "/v1/login/device" => {
            Repeat::Harmless("nobody is known yet; what is begun twice ends by itself")
        }
        "/v1/login/token" => {
            Repeat::Harmless("a code is good once, and a refresh token again for a moment")
        }
        "/v1/hub/notices/test" => Repeat::Harmless("each is a test, and says so"),
        "/v1/login/end" | "/v1/users/{name}/sessions/end" => {
            Repeat::Harmless("a session ends once")
        }
        _ => return None,
    })
}

impl Operation {
    /// None = it is no POST.
    pub fn repeat(&self) -> Option<Repeat> {
        repeat(self.path).filter(|_| self.method == "post")
    }
}
