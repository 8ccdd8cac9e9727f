//! Principal, verb and cluster to: allow as this user and these groups, or deny.

use crate::hub::auth::User;
use crate::wire::id::ClusterName;

/// The most groups that one request carries; the agent's gate holds the same limit.
pub const MAX_GROUPS: usize = 32;

/// Who the API server sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    /// `linesman:<name>`
    pub user: String,
    /// `linesman:<group>`, at least one.
    pub groups: Vec<String>,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Full,
    Read,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Read => "read",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Denied {
    pub reason: String,
    pub next: String,
}

/// Whether `user` may reach the API of `cluster`, and as whom.
pub fn decide(user: &User, cluster: &ClusterName) -> Result<Impersonation, Denied> {
    let named = |text: &str| -> bool {
        (1..=200).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._@+:-".contains(&b))
    };
    if user.groups.is_empty() {
        return Err(Denied {
            reason: format!("{} has no grant on cluster {cluster}", user.name),
            next: "ask a hub admin for a grant".to_owned(),
        });
    }
    if !named(&user.name) || user.groups.len() > MAX_GROUPS || !user.groups.iter().all(|g| named(g))
    {
        return Err(Denied {
            reason: format!(
                "the grant of {} cannot be sent to a cluster: names are 1 to 200 of A-Z a-z 0-9 . _ @ + : - and groups at most {MAX_GROUPS}",
                user.name
            ),
            next: "ask a hub admin to rename the user or its groups".to_owned(),
        });
    }
    let mut groups: Vec<String> = user
        .groups
        .iter()
        .map(|g| format!("linesman:{g}"))
        .collect();
    groups.sort();
    groups.dedup();
    Ok(Impersonation {
        user: format!("linesman:{}", user.name),
        groups,
        mode: Mode::Full,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            id: "u".into(),
            name: name.into(),
            roles: vec![],
            groups: groups.iter().map(ToString::to_string).collect(),
            token_id: "t".into(),
            expires_at: None,
        }
    }

    #[test]
    fn a_grant_becomes_prefixed_names() {
        let cluster = "eu1".parse().unwrap();
        assert_eq!(
            decide(&user("admin", &["view", "admin", "view"]), &cluster),
            Ok(Impersonation {
                user: "linesman:admin".into(),
                groups: vec!["linesman:admin".into(), "linesman:view".into()],
                mode: Mode::Full
            })
        );
    }

    #[test]
    fn no_grant_and_unsendable_names_are_denied() {
        let cluster = "eu1".parse().unwrap();
        let many: Vec<String> = (0..33).map(|n| format!("g{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for bad in [
            user("admin", &[]),
            user("", &["admin"]),
            user("a b", &["admin"]),
            user("admin", &["x\r\ny"]),
            user("admin", &many),
        ] {
            assert!(decide(&bad, &cluster).is_err(), "{bad:?}");
        }
    }
}
