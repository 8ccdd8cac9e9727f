//! What users may do at the hub, and what less a token of theirs may be for. Pure.

/// What a user may do at the hub. Reaching a cluster's API is a grant, not a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sees clusters, heals and bundles.
    Viewer,
    /// Adds, readopts and removes clusters, imports, sees and removes bundles, pushes to the catalog.
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
