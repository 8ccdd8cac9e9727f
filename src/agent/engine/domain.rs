//! The domain of the cluster's Services, and where controllers are told an address below it: an install value, not part of the
//! digest.

use std::fmt;

/// What Flux' manifests are made for, and what nearly every cluster has.
const USUAL: &str = "cluster.local";
/// The arguments with addresses of Services, wherever they stand: where events are posted, and where artifacts are fetched.
const ADDRESSES: [&str; 2] = ["--events-addr=", "--storage-adv-addr="];
/// A DNS name has 253 characters at most, and before the domain stands that of a Service.
const LONGEST: usize = 190;

/// The domain of a cluster, `clusterDomain` of its kubelets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

impl Default for Domain {
    fn default() -> Self {
        Self(USUAL.to_owned())
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Domain {
    /// From the `resolv.conf` of a Pod in `namespace` that asks the cluster's DNS, as Pods do: its search list has
    /// `NAMESPACE.svc.DOMAIN` and `svc.DOMAIN` (`pkg/kubelet/network/dns`). Where it says anything else, the usual one.
    pub fn of(resolv_conf: &str, namespace: &str) -> Self {
        // Of several lists the last one counts (resolv.conf(5)).
        let mut lists = resolv_conf.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("search")).then_some(words)
        });
        let names: Vec<String> = lists
            .next_back()
            .into_iter()
            .flatten()
            .map(|name| name.trim_end_matches('.').to_ascii_lowercase())
            .collect();
        let own = format!("{namespace}.svc.");
        let domain = names.iter().find_map(|name| name.strip_prefix(&own));
        let of_all = |domain: &&str| names.contains(&format!("svc.{domain}"));
        domain
            .filter(|domain| is_domain(domain))
            .filter(of_all)
            .map_or_else(Self::default, |domain| Self(domain.to_owned()))
    }

    /// An argument with its address below this domain; none where it stays as it is: it has no address below the usual one, as in
    /// a manifest that was made for another domain.
    pub(super) fn moved(&self, argument: &str) -> Option<String> {
        if self.0 == USUAL || !ADDRESSES.iter().any(|flag| argument.starts_with(flag)) {
            return None;
        }
        let (service, rest) = argument.split_once(&format!(".svc.{USUAL}"))?;
        let end = rest.strip_prefix('.').unwrap_or(rest);
        let whole = end.is_empty() || end.starts_with(['/', ':']);
        whole.then(|| format!("{service}.svc.{self}{rest}"))
    }
}

/// A name in the letters of hosts (RFC 1123).
fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= LONGEST && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(name: &str) -> Domain {
        Domain(name.to_owned())
    }

    #[test]
    fn the_domain_is_what_a_pods_search_list_says() {
        let long = vec!["a".repeat(60); 4].join(".");
        let too_long = format!("search linesman.svc.{long} svc.{long}");
        for (text, expected) in [
            (
                "search linesman.svc.cluster.local svc.cluster.local cluster.local ec2.internal\nnameserver 10.96.0.10\noptions ndots:5\n",
                "cluster.local",
            ),
            (
                "nameserver 10.0.0.10\nsearch linesman.svc.k8s.example.org svc.k8s.example.org k8s.example.org lan\n",
                "k8s.example.org",
            ),
            ("search\tlinesman.svc.Corp.  svc.corp. corp.", "corp"),
            // The last list counts, and the order in it does not.
            (
                "search linesman.svc.a svc.a\nsearch svc.b b linesman.svc.b",
                "b",
            ),
            ("search linesman.svc.a svc.a\nsearch lan", "cluster.local"),
            // A Pod that asks its node's DNS, one of another namespace, or words that are none of the kubelet's.
            ("", "cluster.local"),
            ("search lan example.org", "cluster.local"),
            ("search other.svc.a svc.a a", "cluster.local"),
            ("search linesman.svc.a a", "cluster.local"),
            ("search linesman.svc.a svc.b", "cluster.local"),
            ("search linesman.svc. svc.", "cluster.local"),
            ("searching linesman.svc.a svc.a", "cluster.local"),
            ("# search linesman.svc.a svc.a", "cluster.local"),
            ("search linesman.svc.a_b svc.a_b", "cluster.local"),
            ("search linesman.svc.-a svc.-a", "cluster.local"),
            ("search linesman.svc.a..b svc.a..b", "cluster.local"),
            (too_long.as_str(), "cluster.local"),
        ] {
            assert_eq!(Domain::of(text, "linesman"), domain(expected), "{text}");
        }
    }

    #[test]
    fn addresses_below_the_usual_domain_are_moved_and_nothing_else_is() {
        let corp = domain("corp.example");
        for (argument, moved) in [
            (
                "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
                "--events-addr=http://notification-controller.flux-system.svc.corp.example./",
            ),
            (
                "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.cluster.local.",
                "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.corp.example.",
            ),
            (
                "--storage-adv-addr=s.ns.svc.cluster.local:9090",
                "--storage-adv-addr=s.ns.svc.corp.example:9090",
            ),
            (
                "--storage-adv-addr=s.ns.svc.cluster.local",
                "--storage-adv-addr=s.ns.svc.corp.example",
            ),
        ] {
            assert_eq!(corp.moved(argument).as_deref(), Some(moved));
            assert_eq!(Domain::default().moved(argument), None);
        }
        for other in [
            "--events-addr=",
            "--events-addr=http://notification-controller/",
            "--events-addr=http://n.ns.svc.k8s.example./",
            "--events-addr=http://n.ns.svc.cluster.local.example./",
            "--events-addr=http://n.ns.svc.cluster.locality/",
            "--watch-label-selector=a.svc.cluster.local",
            "x--events-addr=http://n.ns.svc.cluster.local./",
        ] {
            assert_eq!(corp.moved(other), None, "{other}");
        }
    }
}
