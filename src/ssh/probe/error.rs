//! The steps of a probe, and what went wrong in one.

use std::fmt;

use crate::ssh::known_hosts::HostKey;

/// The steps of a probe, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Dns,
    Tcp,
    HostKey,
    /// The key was offered, and nothing was heard of it: the connection or the time ended first.
    Offer,
    /// The key is not taken.
    Auth,
    Repo,
    Branch,
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::HostKey => "host-key",
            Self::Offer | Self::Auth => "auth",
            Self::Repo => "repo",
            Self::Branch => "branch",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The step that failed, what happened, and what to do. Nothing secret is in any text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    #[error("dns: {text}")]
    Dns { text: String },
    #[error("tcp: {text}")]
    Tcp { text: String },
    /// Fingerprints as `SHA256:…`; `presented` is absent where the host showed no key that we can read.
    #[error("host-key: {text}")]
    HostKey {
        presented: Option<HostKey>,
        expected: Vec<String>,
        text: String,
    },
    /// Says nothing of the key: a host with too much to do, or what stands before it, hangs up, too.
    #[error("auth: {text}")]
    Offer { text: String },
    #[error("auth: {text}")]
    Auth { text: String },
    #[error("repo: {text}")]
    Repo { text: String },
    #[error("branch: {text}")]
    Branch { text: String },
}

impl ProbeError {
    pub fn step(&self) -> Step {
        match self {
            Self::Dns { .. } => Step::Dns,
            Self::Tcp { .. } => Step::Tcp,
            Self::HostKey { .. } => Step::HostKey,
            Self::Offer { .. } => Step::Offer,
            Self::Auth { .. } => Step::Auth,
            Self::Repo { .. } => Step::Repo,
            Self::Branch { .. } => Step::Branch,
        }
    }

    pub(super) fn at(step: Step, text: String) -> Self {
        match step {
            Step::Dns => Self::Dns { text },
            Step::Tcp => Self::Tcp { text },
            Step::HostKey => Self::HostKey {
                presented: None,
                expected: Vec::new(),
                text,
            },
            Step::Offer => Self::Offer { text },
            Step::Auth => Self::Auth { text },
            Step::Repo => Self::Repo { text },
            Step::Branch => Self::Branch { text },
        }
    }
}
