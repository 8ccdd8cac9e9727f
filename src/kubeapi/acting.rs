//! Whom a user asks to act as: `kubectl --as`, in the headers of Kubernetes' impersonation. Read in their one plain
//! form; in any other they are refused, so that no server behind can read them differently. What is asked for is
//! given by a grant, never by these headers: they end at the hub.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::BTreeSet;
use std::fmt;

use http::header::{HeaderMap, HeaderValue};

use super::headers::{HeaderError, named_by_connection};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const PREFIX: &str = "linesman:";
/// Groups of one request; the agent's gate holds the same limit.
const MAX_GROUPS: usize = 32;

/// Someone to act as, without the prefix `linesman:`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acting {
    pub user: String,
    pub groups: BTreeSet<String>,
}

impl fmt::Display for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)?;
        for (n, group) in self.groups.iter().enumerate() {
            write!(f, "{}{group}", if n == 0 { " in " } else { "," })?;
        }
        Ok(())
    }
}

/// A name of a user or group that can be acted as: never one of Kubernetes' own.
pub fn actable(name: &str) -> bool {
    (1..=200).contains(&name.len())
        && !name.starts_with("system:")
        && !name.starts_with(PREFIX)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._@+:-".contains(&b))
}

/// Whom the headers ask for, `bob` and `linesman:bob` alike; None = nobody else.
pub fn asked(headers: &HeaderMap) -> Result<Option<Acting>, HeaderError> {
    let like = |name: &str| name.replace('_', "-").starts_with("impersonate-");
    let refused = |name: &str| HeaderError::Impersonation(name.chars().take(80).collect());
    // Of other hops' headers nobody acts as anyone; a user id or extras no grant can give.
    let odd = |name: &&str| like(name) && !matches!(*name, USER | GROUP);
    if let Some(name) = headers.keys().map(http::HeaderName::as_str).find(odd) {
        return Err(refused(name));
    }
    let mut users = headers.get_all(USER).iter();
    let Some(user) = users.next() else {
        if headers.contains_key(GROUP) {
            return Err(refused(GROUP));
        }
        return Ok(None);
    };
    let named = named_by_connection(headers).into_iter();
    if users.next().is_some() || named.into_iter().any(|name| like(&name)) {
        return Err(refused(USER));
    }
    let groups = headers.get_all(GROUP).iter().map(name);
    let acting = Acting {
        user: name(user).ok_or_else(|| refused(USER))?,
        groups: groups
            .collect::<Option<_>>()
            .ok_or_else(|| refused(GROUP))?,
    };
    if acting.groups.len() > MAX_GROUPS {
        return Err(refused(GROUP));
    }
    Ok(Some(acting))
}

fn name(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let name = text.strip_prefix(PREFIX).unwrap_or(text);
    actable(name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    /// `name: value` a line.
    fn told(text: &str) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        match asked(&map) {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(acting)) => acting.to_string(),
            Err(HeaderError::Impersonation(name)) => format!("refused {name}"),
            Err(other) => panic!("{other}"),
        }
    }

    const FORMS: [(&str, &str); 11] = [
        ("accept: a/b", "nobody"),
        ("Impersonate-User: bob", "bob"),
        ("IMPERSONATE-USER: linesman:bob", "bob"),
        (
            "Impersonate-User: bob\nimpersonate-group: view\nImpersonate-Group: linesman:edit",
            "bob in edit,view",
        ),
        ("impersonate-group: view", "refused impersonate-group"),
        ("impersonate_user: bob", "refused impersonate_user"),
        ("Impersonate-User: ", "refused impersonate-user"),
        ("Impersonate-User: linesman:", "refused impersonate-user"),
        ("Impersonate-User: system:admin", "refused impersonate-user"),
        (
            "Impersonate-User: linesman:system:admin",
            "refused impersonate-user",
        ),
        (
            "Impersonate-User: linesman:linesman:bob",
            "refused impersonate-user",
        ),
    ];

    /// Beside `Impersonate-User: bob`, and the header that is refused.
    const BESIDE: [(&str, &str); 10] = [
        ("Impersonate-User: bob", "user"),
        ("Impersonate-User: bob, eve", "user"),
        ("Connection: close, Impersonate-User", "user"),
        ("Connection: impersonate_group", "user"),
        ("Impersonate-Group: system:masters", "group"),
        ("Impersonate-Group: a,system:masters", "group"),
        ("Impersonate-Group: ", "group"),
        ("Impersonate-Uid: 1", "uid"),
        ("Impersonate-Extra-Scopes: a", "extra-scopes"),
        ("Impersonate-Users: a", "users"),
    ];

    /// L10, L34: the one form that is read, and those that are refused.
    #[test]
    fn only_the_plain_form_names_someone() {
        for (rows, says) in FORMS {
            assert_eq!(told(rows), says, "{rows}");
        }
        for (row, refused) in BESIDE {
            let says = format!("refused impersonate-{refused}");
            assert_eq!(
                told(&format!("Impersonate-User: bob\n{row}")),
                says,
                "{row}"
            );
        }
        let underscore = told("Impersonate-User: bob\nimpersonate_group: view");
        assert_eq!(underscore, "refused impersonate_group");
        let many = "\nImpersonate-Group: g";
        let many: Vec<String> = (0..33).map(|n| format!("{many}{n}")).collect();
        let many = told(&format!("Impersonate-User: bob{}", many.concat()));
        assert_eq!(many, "refused impersonate-group");
    }
}
