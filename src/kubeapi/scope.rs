//! What a request does, as grants and the owner's policy narrow it: whether it only reads, and where it lies.
//! Hub and agent judge by the same functions.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::BTreeSet;

use super::path::RequestInfo;

/// Whether it only reads. Told by resource as well as by verb: GET can exec.
pub fn reads(info: &RequestInfo) -> bool {
    if asks_about_self(info) {
        return true;
    }
    if info.resource_request {
        return matches!(info.verb.as_str(), "get" | "list" | "watch")
            && !info.interactive()
            && !for_an_act(info);
    }
    matches!(info.verb.as_str(), "get" | "head")
}

/// Subresources that are there for what is done by them: nothing is read there that is not read of the object itself. An API server
/// with constrained impersonation has none of them among what may be read, either.
fn for_an_act(info: &RequestInfo) -> bool {
    matches!(
        info.subresource.as_str(),
        "ephemeralcontainers" | "eviction" | "token"
    )
}

/// Reviews of the caller's own rights, which `kubectl auth can-i` and `whoami` create.
pub fn asks_about_self(info: &RequestInfo) -> bool {
    info.verb == "create"
        && info.subresource.is_empty()
        && matches!(
            (info.group.as_str(), info.resource.as_str()),
            (
                "authorization.k8s.io",
                "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
            ) | ("authentication.k8s.io", "selfsubjectreviews")
        )
}

/// Whether it lies in one of these namespaces: cluster-wide lists and cluster-scoped objects show the others. A
/// Namespace itself is only looked at: its labels say what Pod Security lets run there, and its end is that of all in it.
pub fn within(info: &RequestInfo, namespaces: &BTreeSet<String>) -> bool {
    !info.resource_request
        || asks_about_self(info)
        || (namespaces.contains(&info.namespace) && !changes_namespace(info))
}

/// Whether it does more with a Namespace object, or with its `status` or `finalize`, than to get or watch it.
pub fn changes_namespace(info: &RequestInfo) -> bool {
    info.resource_request && info.resource == "namespaces" && !reads(info)
}

/// `delete pods`, `create pods/exec`, `get the path`: for messages.
pub fn describe(info: &RequestInfo) -> String {
    let resource = if info.resource.is_empty() {
        "the path"
    } else {
        &info.resource
    };
    let slash = if info.subresource.is_empty() { "" } else { "/" };
    format!("{} {resource}{slash}{}", info.verb, info.subresource)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kubeapi::path::classify;

    /// The rule of hub and agent: whoever is let into a namespace does not decide what the namespace is.
    #[test]
    fn a_namespace_is_looked_at_from_within_and_no_more() {
        let within = |method: &str, path: &str| {
            let method: Method = method.parse().unwrap();
            let info = classify(&method, path, None).unwrap();
            within(&info, &["a".to_owned()].into())
        };
        let namespace = "/api/v1/namespaces/a";
        for (method, path) in [("GET", namespace), ("HEAD", namespace)] {
            assert!(within(method, path), "{method} {path}");
        }
        assert!(within("GET", "/api/v1/namespaces/a/status"));
        assert!(within("GET", "/api/v1/watch/namespaces/a"));
        for path in ["", "/", "/status", "/finalize"] {
            for method in ["PUT", "PATCH", "DELETE", "POST", "OPTIONS"] {
                let path = format!("{namespace}{path}");
                assert!(!within(method, &path), "{method} {path}");
            }
        }
        assert!(!within("GET", "/api/v1/proxy/namespaces/a"));
        // What lies in it is not meant.
        assert!(within("DELETE", "/api/v1/namespaces/a/pods/namespaces"));
        assert!(within("PATCH", "/api/v1/namespaces/a/resourcequotas/q"));
    }
}
