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
        return matches!(info.verb.as_str(), "get" | "list" | "watch") && !info.interactive();
    }
    matches!(info.verb.as_str(), "get" | "head")
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

/// Whether it lies in one of these namespaces: cluster-wide lists and cluster-scoped objects show the others.
pub fn within(info: &RequestInfo, namespaces: &BTreeSet<String>) -> bool {
    !info.resource_request || asks_about_self(info) || namespaces.contains(&info.namespace)
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
