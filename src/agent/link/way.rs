//! Which way the agent goes to its hub: by the proxy that its adoption YAML names, or else by that of its environment. Pure.

use super::ProxyConfig;
use super::transport::Target;
use crate::manifests::bypass::{bypassed, rules};
use crate::manifests::proxy::{self, ProxyError};

/// The proxy for `https://`; the first that is set counts, as for the program's other verbs.
const PROXY: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const BYPASS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxy that the agent's environment names, as an operator or a webhook puts it into Pods. It is kept apart from what the
/// owner's YAML says: that is stored, and counts before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Around(Option<ProxyConfig>);

impl Around {
    /// Of these variables. The error shows nothing of a URL that is not taken.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let first = |names: [&str; 2]| {
            let mut set = names.into_iter().filter_map(&variable);
            set.find(|text| !text.trim().is_empty())
        };
        let Some(url) = first(PROXY) else {
            return Ok(Self(None));
        };
        let proxy = proxy::parse(url.trim())?;
        let bypass = first(BYPASS).unwrap_or_default();
        Ok(Self(Some(ProxyConfig {
            address: proxy.address,
            credentials: proxy.credentials,
            bypass: rules(&bypass).map(str::to_owned).collect(),
        })))
    }

    /// The proxy that is asked, where the YAML gave this one.
    pub fn way(&self, given: Option<&ProxyConfig>) -> Option<ProxyConfig> {
        given.or(self.0.as_ref()).cloned()
    }

    /// In words, for the log: which way is taken to this URL of the hub, and by whose word. No credentials are among them.
    pub fn words(&self, given: Option<&ProxyConfig>, url: &str) -> String {
        let (proxy, said, left_out) = match (given, &self.0) {
            (Some(given), _) => (given, "the adoption YAML", "the adoption YAML"),
            (None, Some(around)) => (around, "HTTPS_PROXY", "NO_PROXY"),
            (None, None) => {
                return "without a proxy: neither the adoption YAML nor HTTPS_PROXY names one"
                    .to_owned();
            }
        };
        match Target::parse(url) {
            Ok(to) if bypassed(&proxy.bypass, &to.host, to.port) => {
                format!("without a proxy: {left_out} leaves {} out", to.host)
            }
            Ok(_) | Err(_) => format!("by the proxy {} of {said}", proxy.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    /// Variables of the environment.
    type Set<'a> = &'a [(&'a str, &'a str)];

    fn around(set: Set<'_>) -> Result<Around, ProxyError> {
        Around::read(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(address: &str, credentials: Option<&str>, bypass: &[&str]) -> ProxyConfig {
        ProxyConfig {
            address: address.to_owned(),
            credentials: credentials.map(|text| Secret::new(text.to_owned())),
            bypass: bypass.iter().map(|rule| (*rule).to_owned()).collect(),
        }
    }

    #[test]
    fn the_proxy_of_the_environment_is_read_as_people_write_it() {
        let plain = proxy("proxy:3128", None, &[]);
        let cases: [(Set, Option<ProxyConfig>); 9] = [
            (&[], None),
            (&[("HTTPS_PROXY", "")], None),
            // What is for other URLs, or leaves out what nobody is asked for.
            (&[("HTTP_PROXY", "http://proxy:3128")], None),
            (&[("NO_PROXY", "*")], None),
            (
                &[("HTTPS_PROXY", " http://proxy:3128/\n")],
                Some(plain.clone()),
            ),
            (&[("https_proxy", "proxy:3128")], Some(plain.clone())),
            (
                &[("HTTPS_PROXY", "proxy:3128"), ("https_proxy", "other:1")],
                Some(plain.clone()),
            ),
            (
                &[("HTTPS_PROXY", " "), ("https_proxy", "proxy:3128")],
                Some(plain),
            ),
            (
                &[
                    ("HTTPS_PROXY", "http://u:p%40ss@proxy"),
                    ("no_proxy", ".svc, 10.0.0.0/8"),
                ],
                Some(proxy("proxy:80", Some("u:p@ss"), &[".svc", "10.0.0.0/8"])),
            ),
        ];
        for (set, wanted) in cases {
            assert_eq!(around(set), Ok(Around(wanted)), "{set:?}");
        }
        let socks = around(&[("HTTPS_PROXY", "socks5://u:hunter2@proxy:1080")]);
        assert_eq!(socks, Err(ProxyError::Shape));
    }

    #[test]
    fn what_the_yaml_names_counts_before_what_is_around() {
        let there = around(&[("HTTPS_PROXY", "http://around:3128")]).unwrap();
        let given = proxy("given:3128", None, &[]);
        assert_eq!(there.way(Some(&given)), Some(given.clone()));
        assert_eq!(there.way(None), Some(proxy("around:3128", None, &[])));
        assert_eq!(Around::default().way(Some(&given)), Some(given));
        assert_eq!(Around::default().way(None), None);
    }

    #[test]
    fn the_log_says_the_way_and_whose_word_it_is_and_no_password() {
        const HUB: &str = "https://hub.corp.example:8443";
        let there = [
            ("HTTPS_PROXY", "http://u:hunter2@around:3128"),
            ("NO_PROXY", "10.0.0.0/8,.corp.example"),
        ];
        let (around, past) = (around(&there[..1]).unwrap(), around(&there).unwrap());
        let given = proxy("given:3128", Some("u:hunter2"), &["hub.other.example"]);
        let none = "without a proxy: neither the adoption YAML nor HTTPS_PROXY names one";
        assert_eq!(Around::default().words(None, HUB), none);
        assert_eq!(
            around.words(None, HUB),
            "by the proxy around:3128 of HTTPS_PROXY"
        );
        assert_eq!(
            past.words(None, HUB),
            "without a proxy: NO_PROXY leaves hub.corp.example out"
        );
        assert_eq!(
            past.words(Some(&given), HUB),
            "by the proxy given:3128 of the adoption YAML"
        );
        assert_eq!(
            past.words(Some(&given), "https://hub.other.example"),
            "without a proxy: the adoption YAML leaves hub.other.example out"
        );
    }
}
