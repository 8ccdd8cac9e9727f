//! Whether a 403 refuses that the line's account acts as somebody. The words of a refusal quote what was asked for, which is
//! anybody's to choose: so it is read as Kubernetes makes it (`NewForbidden` in apimachinery/pkg/api/errors/errors.go,
//! `forbiddenMessage` in apiserver/pkg/endpoints/handlers/responsewriters), and what is quoted is stepped over. Pure.

use serde::Deserialize;

use super::credential::SERVICE_ACCOUNT;

/// What the account cannot do then: by classic impersonation, and by the two checks of the constrained one (KEP-5284).
const ACTING: [&str; 3] = [
    "impersonate resource ",
    "impersonate:user-info ",
    "impersonate-on:user-info:",
];
/// What Kubernetes' objects in protobuf begin with (apimachinery/pkg/runtime/serializer/protobuf).
const MAGIC: &[u8] = b"k8s\0";

/// How a `Status` is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Protobuf,
}

impl Form {
    /// By the answer's content type; others are not read.
    pub(super) fn of(kind: &[u8]) -> Option<Self> {
        let is = |name: &str| kind.starts_with(name.as_bytes());
        if is("application/json") {
            Some(Self::Json)
        } else {
            is("application/vnd.kubernetes.protobuf").then_some(Self::Protobuf)
        }
    }
}

/// What is read of a `metav1.Status`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Told {
    message: String,
    details: Details,
}

/// What was refused: a resource, or a path of the API where `kind` is empty.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Details {
    group: String,
    kind: String,
}

/// Whether the API server refuses with this body that the line's account, in the agent's namespace, acts as somebody.
pub(super) fn is_of_acting(form: Form, body: &[u8], namespace: &str) -> bool {
    let told: Option<Told> = match form {
        Form::Json => serde_json::from_slice(body).ok(),
        Form::Protobuf => unpacked(body),
    };
    let account = format!("User \"system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}\" cannot ");
    let cannot = told.as_ref().and_then(reason);
    let cannot = cannot.and_then(|reason| reason.strip_prefix(account.as_str()));
    cannot.is_some_and(|what| ACTING.iter().any(|acting| what.starts_with(acting)))
}

/// What stands behind what was refused: `pods "x" is forbidden: …`, `deployments.apps is forbidden: …`, `forbidden: …`.
fn reason(told: &Told) -> Option<&str> {
    let Details { group, kind } = &told.details;
    let message = told.message.as_str();
    if kind.is_empty() {
        return message.strip_prefix("forbidden: ");
    }
    // Resource and group may be anything, too; the details say how far they go.
    let mut rest = message.strip_prefix(kind.as_str())?;
    if !group.is_empty() {
        rest = rest.strip_prefix('.')?.strip_prefix(group.as_str())?;
    }
    if let Some(name) = rest.strip_prefix(" \"") {
        rest = behind_quoted(name)?;
    }
    rest.strip_prefix(" is forbidden: ")
}

/// What follows a text in quotes as Go writes it (`%q`), from behind the first of them.
fn behind_quoted(text: &str) -> Option<&str> {
    let mut escaped = false;
    let end = text.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    text.get(end + 1..)
}

/// A `Status` within its envelope: `runtime.Unknown` (apimachinery/pkg/runtime/generated.proto) and `Status`
/// (apimachinery/pkg/apis/meta/v1/generated.proto).
fn unpacked(body: &[u8]) -> Option<Told> {
    let status = field(body.strip_prefix(MAGIC)?, 2)?;
    let text = |message, number| {
        let text = field(message, number).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.unwrap_or_default().to_owned()
    };
    let details = field(status, 5).unwrap_or_default();
    Some(Told {
        message: text(status, 3),
        details: Details {
            group: text(details, 2),
            kind: text(details, 3),
        },
    })
}

/// The bytes of a protobuf message's field (protobuf.dev/programming-guides/encoding); None = it has none, or is no message.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let length = match key & 7 {
            0 => {
                varint(&mut message)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        message = rest;
        if key >> 3 == number {
            found = Some(value);
        }
    }
    found
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
