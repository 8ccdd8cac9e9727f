//! What an operator chooses about adoption YAML, checked before a cluster's owner applies it: in the cluster, a wrong value
//! is a Pod that does not start or an agent that cannot dial.

use std::net::IpAddr;

use crate::hub::image;
use crate::manifests::bypass;
use crate::manifests::proxy::{self, ProxyError, unbracketed};
use crate::wire::api::AdoptionOptions;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("'{0}' is not an image")]
    Image(String),
    #[error("'{0}' is not the name of a Secret")]
    PullSecret(String),
    #[error("noProxy: '{0}' is no name, address or network")]
    NoProxy(String),
    #[error("httpsProxy: {0}")]
    Proxy(#[from] ProxyError),
}

impl Wrong {
    pub fn next(&self) -> &'static str {
        match self {
            Self::Image(_) => "give it as registry.example.org/linesman-agent:0.1.0",
            Self::PullSecret(_) => {
                "give the name of a Secret in the namespace linesman: a-z, 0-9, '-' and '.'"
            }
            Self::Proxy(_) => {
                "write http://[user:password@]host[:port], with %40 for an @ in the password"
            }
            Self::NoProxy(_) => {
                "give corp.example, 192.0.2.7, 10.0.0.0/8 or *, with commas between; names and addresses with :PORT for one port"
            }
        }
    }
}

/// Empty values are left out of the YAML.
pub fn check(options: &AdoptionOptions) -> Result<(), Wrong> {
    let shown = |text: &str| crate::hub::cut(text, 80).to_owned();
    let image = options.image.as_str();
    if !image.is_empty() && image::pin(image).is_none() {
        return Err(Wrong::Image(shown(image)));
    }
    let secret = options.image_pull_secret.as_str();
    if !secret.is_empty() && !is_secret(secret) {
        return Err(Wrong::PullSecret(shown(secret)));
    }
    if !options.https_proxy.is_empty() {
        proxy::parse(&options.https_proxy)?;
    }
    match bypass::rules(&options.no_proxy).find(|rule| !is_bypass(rule)) {
        Some(rule) => Err(Wrong::NoProxy(shown(rule))),
        None => Ok(()),
    }
}

/// A DNS subdomain (RFC 1123), as Kubernetes wants names of Secrets.
pub fn is_secret(name: &str) -> bool {
    let label = |label: &str| {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        label.bytes().all(|b| letter(b) || b == b'-')
            && label.bytes().next().is_some_and(letter)
            && label.bytes().last().is_some_and(letter)
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// The forms that [`bypass::bypassed`] reads; all else it would pass over in silence.
fn is_bypass(rule: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if let Some((network, length)) = rule.split_once('/') {
        let most = unbracketed(network)
            .parse()
            .map(|ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 });
        return matches!((most, length.parse::<u8>()), (Ok(most), Ok(length)) if length <= most);
    }
    if unbracketed(rule).parse::<IpAddr>().is_ok() {
        return true;
    }
    let (host, port) = match rule.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rule, None),
    };
    let usable = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if !port.is_none_or(usable) {
        return false;
    }
    unbracketed(host).parse::<IpAddr>().is_ok() || is_name(host)
}

/// `corp.example`, `.corp.example`, `*.corp.example`; what is digits and dots alone was meant as an address.
fn is_name(name: &str) -> bool {
    let name = name.strip_prefix('*').unwrap_or(name);
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    name.split('.')
        .all(|label| !label.is_empty() && label.bytes().all(letter))
        && name.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(image: &str, image_pull_secret: &str, no_proxy: &str) -> Result<(), Wrong> {
        check(&AdoptionOptions {
            image: image.to_owned(),
            image_pull_secret: image_pull_secret.to_owned(),
            no_proxy: no_proxy.to_owned(),
            ..AdoptionOptions::default()
        })
    }

    #[test]
    fn what_a_cluster_could_not_use_is_refused_before_it_gets_there() {
        assert_eq!(checked("", "", ""), Ok(()));
        assert_eq!(checked("r.org/agent:1", "pull.secret-1", "*"), Ok(()));
        let image = ":::bad".to_owned();
        assert_eq!(checked(&image, "", ""), Err(Wrong::Image(image)));
        for name in ["A_B", "-a", "a.", "a..b"] {
            let wrong = Wrong::PullSecret(name.to_owned());
            assert_eq!(checked("", name, ""), Err(wrong));
        }
    }

    #[test]
    fn what_is_reached_without_the_proxy_is_said_in_a_form_that_the_agent_reads() {
        let good = "corp.example,.svc *.lan,localhost:8443,10.0.0.0/8,192.0.2.7:443,fd00::/8,[fd00::1]:443,fd00::1";
        assert_eq!(checked("", "", good), Ok(()));
        for rule in [
            "10.0.0.0/99",
            "fd00::/129",
            "corp/8",
            "10.0.0.300",
            "corp.example:0",
            "corp.example:port",
            "a..b",
            "https://corp.example",
            "corp;example",
        ] {
            let wrong = Wrong::NoProxy(rule.to_owned());
            assert_eq!(checked("", "", &format!("lan,{rule}")), Err(wrong));
        }
    }
}
