//! The HTTP proxy on an agent's way to its hub, as the cluster's owner writes it: hub and agent read it alike, so that a mistake is
//! told before there is an agent.

use http::uri::Authority;

use crate::secret::Secret;

/// Where no port is written, as in any `http://` URL.
const PORT: u16 = 80;

/// An HTTP proxy that is asked to CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// `host:port`
    pub address: String,
    /// `user:password`, as the proxy knows them.
    pub credentials: Option<Secret<String>>,
}

/// Why a proxy's URL is not taken. None of it is shown: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("a proxy is asked over http://, not https://: what passes it is encrypted by itself")]
    Https,
    #[error("the proxy is not http://[user:password@]host[:port]")]
    Shape,
    #[error("the proxy's user or password has a control character or is not UTF-8")]
    Credentials,
}

/// Reads `http://[user:password@]host[:port]`; the scheme may be left out where there is a port. A character of user and
/// password that means something in a URL is written as `%40` there (RFC 3986 §2.1); a `%` that begins no such code stands for itself.
pub fn parse(url: &str) -> Result<Proxy, ProxyError> {
    if url.starts_with("https://") {
        return Err(ProxyError::Https);
    }
    let plain = url.strip_prefix("http://");
    // Of another scheme, which would be read as a part of the user.
    if plain.is_none() && url.contains("://") {
        return Err(ProxyError::Shape);
    }
    let rest = plain.unwrap_or(url);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, address) = match rest.rsplit_once('@') {
        Some((credentials, address)) => (Some(decoded(credentials)?), address),
        None => (None, rest),
    };
    let authority: Authority = address.parse().map_err(|_| ProxyError::Shape)?;
    let host = authority.host();
    let port = match address.strip_prefix(host) {
        Some("") if plain.is_some() => Some(PORT),
        Some(port) => port.strip_prefix(':').and_then(|port| port.parse().ok()),
        None => None,
    };
    match port {
        Some(port @ 1..) if !host.is_empty() => Ok(Proxy {
            address: format!("{host}:{port}"),
            credentials: credentials.map(Secret::new),
        }),
        _ => Err(ProxyError::Shape),
    }
}

/// A host without the brackets in which an IPv6 address stands beside a port (RFC 3986 §3.2.2).
pub fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn decoded(text: &str) -> Result<String, ProxyError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = match (first, behind) {
            (b'%', [high, low, ..]) => nibble(*high).zip(nibble(*low)),
            _ => None,
        };
        if let Some((high, low)) = code {
            bytes.push(high << 4 | low);
            rest = behind.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| ProxyError::Credentials)?;
    if text.chars().any(char::is_control) {
        return Err(ProxyError::Credentials);
    }
    Ok(text)
}

fn nibble(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_as_people_write_it() {
        for (url, address, credentials) in [
            ("http://proxy:3128", "proxy:3128", None),
            ("http://proxy:3128/", "proxy:3128", None),
            ("proxy:3128", "proxy:3128", None),
            ("http://proxy", "proxy:80", None),
            ("http://[fd00::1]:3128", "[fd00::1]:3128", None),
            ("http://[fd00::1]", "[fd00::1]:80", None),
            ("http://user@proxy", "proxy:80", Some("user")),
            ("http://u:p%40ss@proxy:3128", "proxy:3128", Some("u:p@ss")),
            ("http://u:p@ss@proxy:3128", "proxy:3128", Some("u:p@ss")),
            ("http://u:%e2%82%AC@proxy:3128", "proxy:3128", Some("u:€")),
            ("http://u:100%@proxy:3128", "proxy:3128", Some("u:100%")),
            ("http://u:%zz%2@proxy:3128", "proxy:3128", Some("u:%zz%2")),
        ] {
            let credentials = credentials.map(|text| Secret::new(text.to_owned()));
            let address = address.to_owned();
            let wanted = Proxy {
                address,
                credentials,
            };
            assert_eq!(parse(url), Ok(wanted), "{url}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        for (url, error) in [
            ("https://proxy:3128", ProxyError::Https),
            ("", ProxyError::Shape),
            ("proxy", ProxyError::Shape),
            ("http://", ProxyError::Shape),
            ("http://:3128", ProxyError::Shape),
            ("http://proxy:", ProxyError::Shape),
            ("http://proxy:0", ProxyError::Shape),
            ("http://proxy:70000", ProxyError::Shape),
            ("http://proxy:3128/path", ProxyError::Shape),
            ("socks5://proxy:1080", ProxyError::Shape),
            ("socks5://u:p@proxy:1080", ProxyError::Shape),
            ("http://pro xy:3128", ProxyError::Shape),
            ("http://u:%0a@proxy:3128", ProxyError::Credentials),
            ("http://u:%ff@proxy:3128", ProxyError::Credentials),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
    }
}
