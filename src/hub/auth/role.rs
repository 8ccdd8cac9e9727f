//! What users may do at the hub, and what less a token of theirs may be for. Pure.

/// What a user may do at the hub. Reaching a cluster's API is a grant, not a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sees clusters, heals and bundles.
    Viewer,
    /// Adds, readopts and removes clusters, imports and removes bundles, pushes to the catalog; sees what a viewer sees.
    Operator,
    /// Manages grants.
    Access,
    /// Reads the audit chain.
    Auditor,
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Access => "access",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    /// Whether who has this role has the other one with it: admins have all, and who changes clusters sees them.
    pub fn holds(self, other: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Operator => matches!(other, Self::Operator | Self::Viewer),
            Self::Viewer | Self::Access | Self::Auditor => self == other,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Viewer,
            Self::Operator,
            Self::Access,
            Self::Auditor,
            Self::Admin,
        ]
        .into_iter()
        .find(|r| r.as_str() == text)
    }
}

/// What a machine's token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The hub's API, by one of the user's roles.
    Role(Role),
    /// Clusters, as the user's grants allow.
    Kube,
    /// The same, reading only.
    KubeRead,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role(role) => role.as_str(),
            Self::Kube => "kube",
            Self::KubeRead => "kube-read",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "kube" => Some(Self::Kube),
            "kube-read" => Some(Self::KubeRead),
            role => Role::parse(role).map(Self::Role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admins_hold_every_role_and_operators_see_what_viewers_see() {
        use Role::{Access, Admin, Auditor, Operator, Viewer};
        let all = [Viewer, Operator, Access, Auditor, Admin];
        let held = |role: Role| all.into_iter().filter(move |other| role.holds(*other));
        let held = all.map(|role| held(role).collect::<Vec<_>>());
        let expected = [
            vec![Viewer],
            vec![Viewer, Operator],
            vec![Access],
            vec![Auditor],
            all.to_vec(),
        ];
        assert_eq!(held, expected);
    }
}
