//! Logins that are under way, as every replica sees them.

use time::OffsetDateTime;

/// What waits. What it holds is sealed ([`crate::hub::login::seal`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingKind {
    /// A browser at the provider.
    Login,
    /// A one-time code that a program fetches its session with.
    Code,
    /// A device that asks whether it may.
    Device,
    /// A code that an admin gave a local user.
    Invite,
}

impl WaitingKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Code => "code",
            Self::Device => "device",
            Self::Invite => "invite",
        }
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub kind: WaitingKind,
    /// SHA-256 of what it is called by: state, code or device code.
    pub key: [u8; 32],
    /// Whose share of the places it takes ([`crate::address::of`]); of a [`WaitingKind::Invite`] the id of its user, with whom it ends.
    pub address: String,
    /// From where it came.
    pub remote: String,
    /// SHA-256 of the cookie of the browser that began; a login has one.
    pub browser: Option<[u8; 32]>,
    /// SHA-256 of the code that a person types; a device has one.
    pub user_code: Option<[u8; 32]>,
    /// Empty for a device that nobody has decided on.
    pub sealed: Vec<u8>,
    pub until: OffsetDateTime,
}

/// What was decided on a device; the reason or the session, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Refused(Vec<u8>),
    Ready(Vec<u8>),
}

/// What a device that asks is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Pending,
    SlowDown,
    /// Told once.
    Decided(Decision),
    Expired,
}
