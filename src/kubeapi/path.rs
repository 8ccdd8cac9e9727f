//! Paths of the Kubernetes API: what is served at all, and what a request means, classified as
//! `RequestInfoFactory` does (k8s.io/apiserver/pkg/endpoints/request/requestinfo.go). Nothing here
//! rewrites a path: policy judges the bytes that are forwarded.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::{Method, StatusCode};

use super::status::{Hop, Refusal};

/// Methods that the Kubernetes API has; no other crosses the line.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// Where the subresource `proxy` stands at the deepest: `apis`, group, version, `watch`, `namespaces`, its name, resource, name, `proxy`.
const PROXY_WITHIN: usize = 9;

/// Refuses what is no method of the Kubernetes API: `CONNECT`, `TRACE`, and what servers make up.
pub fn method(method: &Method, hop: Hop) -> Result<(), Refusal> {
    if METHODS.contains(method) {
        return Ok(());
    }
    let what = "the method is not passed on";
    let refusal = Refusal::new(hop, StatusCode::METHOD_NOT_ALLOWED, "Method", what);
    Err(refusal.next("use the methods of the Kubernetes API"))
}

/// What a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it names a resource below `/api` or `/apis`.
    pub resource_request: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or the
    /// lower-case method of a non-resource request.
    pub verb: String,
    pub group: String,
    pub version: String,
    /// Empty = none: a cluster-scoped resource, or all namespaces.
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
}

impl RequestInfo {
    /// Requests without a deadline: as the API server sees it (`BasicLongRunningRequestCheck`).
    pub fn long_running(&self) -> bool {
        matches!(self.verb.as_str(), "watch" | "proxy")
            || matches!(
                self.subresource.as_str(),
                "attach" | "exec" | "proxy" | "log" | "portforward"
            )
            || self.console()
    }

    /// Whether it opens a way into a container, a pod's port or a node, whatever its method.
    pub fn interactive(&self) -> bool {
        self.proxied()
            || matches!(self.subresource.as_str(), "attach" | "exec" | "portforward")
            || self.console()
    }

    /// Whether what answers may stand behind the API server: a Pod, a Service or a node.
    pub fn proxied(&self) -> bool {
        self.verb == "proxy" || self.subresource == "proxy"
    }

    /// `KubeVirt`'s serial console, display and port-forward.
    fn console(&self) -> bool {
        self.group == "subresources.kubevirt.io"
            && matches!(self.subresource.as_str(), "console" | "vnc")
    }

    /// Whether it reaches a kubelet through the API server: exec into any pod by GET.
    pub fn node_proxy(&self) -> bool {
        self.resource == "nodes" && self.proxied()
    }

    /// Whether a switch of protocol to `token` may be asked for here.
    pub fn may_upgrade(&self, token: Upgrade) -> bool {
        match token {
            Upgrade::WebSocket => {
                self.interactive() || self.subresource == "log" || self.verb == "watch"
            }
            Upgrade::Spdy => matches!(
                self.subresource.as_str(),
                "attach" | "exec" | "proxy" | "portforward"
            ),
        }
    }
}

/// The protocols that a Kubernetes client switches to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    WebSocket,
    Spdy,
}

impl Upgrade {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }
}

/// Why a path is not passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("{0} in the path")]
    Malformed(&'static str),
    #[error("'{0}' is not a path of the Kubernetes API")]
    Unknown(String),
}

impl PathError {
    pub fn refusal(&self, hop: Hop) -> Refusal {
        match self {
            Self::Malformed(_) => {
                Refusal::new(hop, StatusCode::BAD_REQUEST, "BadPath", self.to_string())
                    .next("send the path as the Kubernetes API defines it")
                    .close()
            }
            Self::Unknown(_) => {
                Refusal::new(hop, StatusCode::NOT_FOUND, "UnknownPath", self.to_string())
                    .next("use /api, /apis, /openapi, /version or a health path")
            }
        }
    }
}

/// Checks the path of a request target and says what it means.
pub fn classify(
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Result<RequestInfo, PathError> {
    let segments = decode(path)?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    served(&parts)?;
    Ok(request_info(method, &parts, query))
}

/// The decoded segments up to the tail behind `/proxy/`, which passes as bytes.
fn decode(path: &str) -> Result<Vec<String>, PathError> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(PathError::Malformed("no leading slash"));
    };
    let mut segments: Vec<String> = Vec::new();
    let mut raw = rest.split('/').peekable();
    while let Some(part) = raw.next() {
        if behind_proxy(&segments) {
            break;
        }
        if part.is_empty() {
            // Only a single slash at the end.
            if raw.peek().is_some() {
                return Err(PathError::Malformed("an empty segment"));
            }
            break;
        }
        segments.push(segment(part)?);
    }
    Ok(segments)
}

/// One decoded segment; refused where two parsers could disagree on it.
fn segment(raw: &str) -> Result<String, PathError> {
    let (bytes, whole) = unescaped(raw);
    if !whole {
        return Err(PathError::Malformed("a broken escape"));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| PathError::Malformed("bytes that are not UTF-8"))?;
    if text.contains(['/', '\\']) {
        return Err(PathError::Malformed("an escaped slash or a backslash"));
    }
    if text.contains(|c: char| c.is_control()) {
        return Err(PathError::Malformed("a control character"));
    }
    // Kubernetes allows no name with it (`path.IsValidPathSegmentName`): an escape within an escape.
    if text.contains('%') {
        return Err(PathError::Malformed("a double escape"));
    }
    if text == "." || text == ".." {
        return Err(PathError::Malformed("a dot segment"));
    }
    Ok(text)
}

/// Whether these segments end in the subresource `proxy`, so that the rest belongs to another server. Asked for each segment: of what is
/// deeper nothing is looked at, for a head has room for thousands.
fn behind_proxy(segments: &[String]) -> bool {
    let parts: Vec<&str> = segments
        .iter()
        .take(PROXY_WITHIN)
        .map(String::as_str)
        .collect();
    let info = request_info(&Method::GET, &parts, None);
    info.resource_request && info.subresource == "proxy"
}

fn served(parts: &[&str]) -> Result<(), PathError> {
    let known = matches!(
        parts,
        [
            "api" | "apis" | "healthz" | "livez" | "readyz" | "metrics",
            ..
        ] | ["openapi", "v2" | "v3", ..]
            | ["version"]
            | [".well-known", "openid-configuration"]
            | ["openid", "v1", "jwks"]
    );
    if known {
        return Ok(());
    }
    let shown: String = format!("/{}", parts.join("/")).chars().take(80).collect();
    Err(PathError::Unknown(shown))
}

fn request_info(method: &Method, parts: &[&str], query: Option<&str>) -> RequestInfo {
    let other = RequestInfo {
        verb: method.as_str().to_ascii_lowercase(),
        ..RequestInfo::default()
    };
    let (group, version, rest) = match parts {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return other,
    };
    let (verb, rest) = match rest {
        // A bare `/watch` or `/proxy` is malformed to the API server; it answers for itself.
        ["watch" | "proxy"] => return other,
        ["watch", rest @ ..] => ("watch", rest),
        ["proxy", rest @ ..] => ("proxy", rest),
        rest => (method_verb(method), rest),
    };
    let (namespace, rest) = match rest {
        // `status` and `finalize` are subresources of the namespace itself.
        ["namespaces", namespace, "status" | "finalize", ..] | ["namespaces", namespace] => {
            (*namespace, rest)
        }
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let mut at = rest.iter().copied();
    let resource = at.next().unwrap_or_default();
    let name = at.next().unwrap_or_default();
    let subresource = if verb == "proxy" {
        ""
    } else {
        at.next().unwrap_or_default()
    };
    let verb = match (verb, name.is_empty()) {
        ("get", true) if wants_watch(query) => "watch",
        ("get", true) => "list",
        ("delete", true) => "deletecollection",
        (verb, _) => verb,
    };
    RequestInfo {
        resource_request: true,
        verb: verb.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: name.to_owned(),
    }
}

fn method_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// In doubt it is a watch: of what Go drops (a part with a semicolon or a broken escape; all, where there are more than 10,000) the API
/// server makes a list, which is let as much, and what is taken for a watch is judged as long as it runs.
fn wants_watch(query: Option<&str>) -> bool {
    asked(query, "watch")
}

/// Whether an exec or attach is for a person at a terminal (`PodExecOptions.TTY`).
pub fn terminal(query: Option<&str>) -> bool {
    asked(query, "tty")
}

/// Whether a write is asked for as a dry run, which stores nothing. A deletion says so in its body as well, and that counts; Go drops a
/// query of more than 10,000 parts; and an account's token is given out, and a machine of `KubeVirt` stopped, all the same. What is not
/// sure is a write.
pub fn dry_run(info: &RequestInfo, query: Option<&str>) -> bool {
    /// More than any client sends.
    const PARTS: usize = 100;
    let writes = matches!(info.verb.as_str(), "create" | "update" | "patch");
    let few = query.is_some_and(|query| query.split('&').count() <= PARTS);
    let stored =
        info.resource_request && matches!(info.subresource.as_str(), "" | "status" | "scale");
    stored && writes && few && values(query, "dryRun").any(|value| value == "All")
}

/// The first parameter `name` decides; there without a value, it is true (`Convert_Slice_string_To_bool` of apimachinery).
fn asked(query: Option<&str>, name: &str) -> bool {
    values(query, name)
        .next()
        .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
}

/// All values of the parameter `name`, in their order.
pub fn values(query: Option<&str>, name: &str) -> impl Iterator<Item = String> {
    let pairs = query.unwrap_or_default().split('&');
    let pairs = pairs.filter(|pair| !pair.is_empty());
    pairs.filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescape(key) == name).then(|| unescape(value))
    })
}

/// The path without the escapes that nobody needs (RFC 3986 6.2.2.2): one place has one name, however it was written.
pub fn normal(path: &str) -> String {
    let (mut normal, mut rest) = (String::with_capacity(path.len()), path);
    while let Some((before, behind)) = rest.split_once('%') {
        normal.push_str(before);
        let escaped = behind.get(..2).zip(behind.get(2..));
        let plain = escaped.and_then(|(hex, behind)| {
            let c = char::from(u8::from_str_radix(hex, 16).ok()?);
            let unreserved = c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
            unreserved.then_some((c, behind))
        });
        let (c, behind) = plain.unwrap_or(('%', behind));
        normal.push(c);
        rest = behind;
    }
    normal.push_str(rest);
    normal
}

/// Lenient decoding for a query parameter: an escape that does not decode stays as it is.
fn unescape(text: &str) -> String {
    String::from_utf8_lossy(&unescaped(&text.replace('+', " ")).0).into_owned()
}

/// Percent-decoded text; `None` where an escape is broken, or it is no UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let (bytes, whole) = unescaped(text);
    String::from_utf8(bytes).ok().filter(|_| whole)
}

/// Percent-decoded bytes, and whether every escape was whole.
fn unescaped(raw: &str) -> (Vec<u8>, bool) {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let (mut bytes, mut whole) = (Vec::with_capacity(raw.len()), true);
    let mut rest = raw.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match tail {
            [high, low, ..] if *first == b'%' => digit(*high)
                .zip(digit(*low))
                .map(|(high, low)| high << 4 | low),
            _ => None,
        };
        if escaped.is_some() {
            rest = tail.get(2..).unwrap_or_default();
        } else {
            whole &= *first != b'%';
        }
        bytes.push(escaped.unwrap_or(*first));
    }
    (bytes, whole)
}

#[cfg(test)]
mod tests;
