//! SSH client and server, on russh: the one owner of that crate. Here: where a catalog lives on a Git host.

mod host_pair;
pub mod known_hosts;
mod lsrefs;
mod probe;
mod server;

use std::fmt;
use std::str::FromStr;

pub use host_pair::HostPair;
pub use probe::{Head, Probe, ProbeError, Step, probe, probe_over};
pub use server::{Authorize, Command, Input, Limits, Output, Right, Run, Server, serve};

/// russh's algorithms without compression: packs are compressed already, and nobody can send us a bomb.
fn uncompressed() -> russh::Preferred {
    russh::Preferred {
        compression: vec![russh::compression::NONE].into(),
        ..russh::Preferred::DEFAULT
    }
}

/// `ssh://user@host[:port]/path`, the only form that Flux, Argo CD and Linesman all take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GitUrl {
    pub user: String,
    pub host: String,
    pub port: u16,
    /// With its leading `/`, as it is sent to the Git host.
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{url}' is not a Git URL: {reason}; it reads ssh://user@host[:port]/path")]
pub struct GitUrlError {
    url: String,
    reason: &'static str,
}

impl FromStr for GitUrl {
    type Err = GitUrlError;

    fn from_str(text: &str) -> Result<Self, GitUrlError> {
        parse(text).map_err(|reason| GitUrlError {
            // A URL with a password must not end up in a log.
            url: match text.rsplit_once('@') {
                Some((_, rest)) => {
                    format!("ssh://…@{}", rest.chars().take(200).collect::<String>())
                }
                None => text.chars().take(200).collect(),
            },
            reason,
        })
    }
}

fn parse(text: &str) -> Result<GitUrl, &'static str> {
    if text.len() > 1024 || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has spaces or control characters, or more than 1024 bytes");
    }
    let rest = text
        .strip_prefix("ssh://")
        .ok_or("it does not start with ssh://")?;
    let (authority, path) = rest.split_once('/').ok_or("the path is missing")?;
    if path.is_empty() || path.contains(['?', '#', '%', '\\', '\'', '"', '!', '$', '`']) {
        return Err("the path is empty or has one of ? # % \\ ' \" ! $ `");
    }
    let (user, address) = authority.split_once('@').unwrap_or(("git", authority));
    if user.contains(':') {
        return Err("it carries a password; SSH uses the deploy key");
    }
    if user.is_empty() || user.starts_with('-') {
        return Err("the user is empty or starts with '-'");
    }
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("']' is missing")?;
            (
                host,
                port.strip_prefix(':')
                    .or_else(|| port.is_empty().then_some("22")),
            )
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, Some("22")),
        },
    };
    let port = port.and_then(|p| p.parse::<u16>().ok()).filter(|p| *p != 0);
    let shaped = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(shaped) {
        return Err("the host is not a name or address");
    }
    Ok(GitUrl {
        user: user.to_owned(),
        host: host.to_ascii_lowercase(),
        port: port.ok_or("the port is not a number of 1 to 65535")?,
        path: format!("/{path}"),
    })
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user,
            host,
            port,
            path,
        } = self;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        match port {
            22 => write!(f, "ssh://{user}@{host}{path}"),
            _ => write!(f, "ssh://{user}@{host}:{port}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_urls_are_read_and_printed() {
        for text in [
            "ssh://git@git.example.com/team/catalog.git",
            "ssh://git@hub.example.com:2222/catalog.git",
            "ssh://git@[::1]:2222/catalog.git",
            "ssh://git@[fd00::1]/catalog.git",
        ] {
            assert_eq!(text.parse::<GitUrl>().unwrap().to_string(), text);
        }
        let short: GitUrl = "ssh://Git.Example.com:22/c".parse().unwrap();
        assert_eq!(short.to_string(), "ssh://git@git.example.com/c");
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "git@git.example.com:team/catalog.git",
            "https://git.example.com/catalog.git",
            "ssh://git@host",
            "ssh://git@host/",
            "ssh://git@/path",
            "ssh://git@host:0/path",
            "ssh://git@host:70000/path",
            "ssh://git@-oProxyCommand=x/path",
            "ssh://-l@host/path",
            "ssh://git@host/a b",
            "ssh://git@host/a'b",
            "ssh://git@host/a?b",
        ] {
            assert!(text.parse::<GitUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = "ssh://git:hunter2@host/path".parse::<GitUrl>().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
