//! The proxy on the way to an HTTPS server, as the environment has it: `HTTPS_PROXY`, `ALL_PROXY` or the system's settings, and
//! `NO_PROXY`, whose rules mean what they mean to an agent.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::Url;

use crate::manifests::bypass::{bypassed, rules};

/// What reqwest is told in place of its own reading, to which `*` means all names and no address, and no rule has a port.
pub(super) fn of_environment() -> reqwest::Proxy {
    let way = Way::of_environment();
    reqwest::Proxy::custom(move |url| way.to(url).as_ref().and_then(address))
}

/// The proxy by which [`super::http`] goes to this address, without its credentials; None = directly.
pub fn proxy(url: &Url) -> Option<String> {
    let found = Way::of_environment().to(url)?;
    let (uri, authority) = (found.uri(), found.uri().authority()?.as_str());
    // Behind the last '@' is no part of a password that has one.
    let address = authority.rsplit('@').next().unwrap_or_default();
    Some(format!(
        "{}://{address}",
        uri.scheme_str().unwrap_or("http")
    ))
}

struct Way {
    matcher: Matcher,
    bypass: Vec<String>,
}

impl Way {
    fn of_environment() -> Self {
        let mut lists = ["NO_PROXY", "no_proxy"]
            .into_iter()
            .filter_map(std::env::var_os)
            .filter(|list| !list.is_empty());
        let list = lists.next().unwrap_or_default();
        Self::new(Matcher::from_system(), &list.to_string_lossy())
    }

    fn new(matcher: Matcher, list: &str) -> Self {
        Self {
            matcher,
            bypass: rules(list).map(str::to_owned).collect(),
        }
    }

    fn to(&self, url: &Url) -> Option<Intercept> {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        if bypassed(&self.bypass, host, port) {
            return None;
        }
        self.matcher.intercept(&url.as_str().parse().ok()?)
    }
}

/// The proxy as a URL, with its credentials.
fn address(found: &Intercept) -> Option<Url> {
    let mut url = Url::parse(&found.uri().to_string()).ok()?;
    if let Some((user, password)) = credentials(found) {
        // A '%' of theirs begins no code.
        let plain = |text: &str| text.replace('%', "%25");
        url.set_username(&plain(&user)).ok()?;
        url.set_password(Some(&plain(&password))).ok()?;
    }
    Some(url)
}

fn credentials(found: &Intercept) -> Option<(String, String)> {
    let basic = found.basic_auth()?.to_str().ok()?.strip_prefix("Basic ")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(basic).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L12: the table of the rules themselves is beside them.
    #[test]
    fn no_proxy_means_here_what_it_means_to_an_agent() {
        const PROXY: &str = "http://proxy.example:3128/";
        for (list, url, left_out) in [
            ("", "https://hub.example", false),
            ("*", "https://hub.example", true),
            ("*", "https://192.0.2.1:8443", true),
            ("*", "https://[2001:db8::1]", true),
            ("a.example, *", "https://192.0.2.1", true),
            ("hub.example:8443", "https://hub.example:8443", true),
            ("hub.example:8443", "https://hub.example", false),
            ("*.example", "https://hub.example", true),
            ("192.0.2.0/24 a.example", "https://192.0.2.1", true),
            ("192.0.2.0/24,a.example", "https://192.0.3.1", false),
        ] {
            let matcher = Matcher::builder().all(PROXY).no(list).build();
            let found = Way::new(matcher, list).to(&url.parse().unwrap());
            let found = found.as_ref().and_then(address);
            let wanted = (!left_out).then_some(PROXY);
            assert_eq!(found.as_ref().map(Url::as_str), wanted, "{list}: {url}");
        }
    }

    #[test]
    fn the_proxy_knows_its_user_by_what_was_written() {
        let to: Url = "https://hub.example".parse().unwrap();
        for (written, user, password) in [
            ("http://me:secret@proxy:3128", "me", "secret"),
            ("http://me:p%40ss%3a%25%34@proxy:3128", "me", "p@ss:%4"),
            ("http://me@proxy:3128", "me", ""),
        ] {
            let matcher = |all: &str| Matcher::builder().all(all.to_owned()).build();
            let found = Way::new(matcher(written), "").to(&to).unwrap();
            let url = address(&found).unwrap();
            assert_eq!(url.host_str(), Some("proxy"), "{written}");
            // As reqwest reads it.
            let read = matcher(url.as_str()).intercept(&to.as_str().parse().unwrap());
            let (user, password) = (user.to_owned(), password.to_owned());
            assert_eq!(credentials(&read.unwrap()), Some((user, password)));
        }
    }
}
