//! Which hosts are reached without the proxy: the rules of `NO_PROXY`, one meaning for the agent's line, its HTTPS and the calls of
//! people's programs. Programs differ in how they read them; here every form that is common counts. Nothing is looked up: a network is compared with an address
//! that stands in the URL itself.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::net::IpAddr;

use super::proxy::unbracketed;

/// The rules of a list, which commas or white space part: in YAML a long one stands on several lines.
pub fn rules(list: &str) -> impl Iterator<Item = &str> {
    list.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|rule| !rule.is_empty())
}

/// Whether one of the rules names this host: `*`, a name (with what lies below it), an address, or a network; names and addresses
/// with `:port` for one port alone.
pub fn bypassed(rules: &[String], host: &str, port: u16) -> bool {
    let host = unbracketed(host).trim_end_matches('.');
    rules.iter().any(|rule| names(rule.trim(), host, port))
}

fn names(rule: &str, host: &str, port: u16) -> bool {
    if rule == "*" {
        return true;
    }
    let address: Option<IpAddr> = host.parse().ok();
    if let Some((network, length)) = rule.split_once('/') {
        let network = unbracketed(network).parse().ok();
        let parts = (network, length.parse().ok(), address);
        return matches!(parts, (Some(network), Some(length), Some(address)) if holds(network, length, address));
    }
    let (named, only) = parted(rule);
    if only.is_some_and(|only| only != port) {
        return false;
    }
    if let Ok(named) = named.parse::<IpAddr>() {
        return address.is_some_and(|address| address.to_canonical() == named.to_canonical());
    }
    address.is_none() && covers(named, host)
}

/// The rule without its port, and the port.
fn parted(rule: &str) -> (&str, Option<u16>) {
    // An address of IPv6 without brackets is full of colons and has no port.
    match rule.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            // What is no port matches nothing.
            (unbracketed(host), Some(port.parse().unwrap_or(0)))
        }
        _ => (unbracketed(rule), None),
    }
}

/// `corp.example`, `.corp.example` and `*.corp.example` are the same: the name and all below it.
fn covers(rule: &str, host: &str) -> bool {
    let rule = rule.strip_prefix('*').unwrap_or(rule);
    let rule = rule.trim_start_matches('.').trim_end_matches('.');
    let (rule, host) = (rule.to_ascii_lowercase(), host.to_ascii_lowercase());
    !rule.is_empty()
        && host
            .strip_suffix(&rule)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn holds(network: IpAddr, length: u32, address: IpAddr) -> bool {
    let (network, address, bits) = match (network, address.to_canonical()) {
        (IpAddr::V4(n), IpAddr::V4(a)) => (u128::from(n.to_bits()), u128::from(a.to_bits()), 32),
        (IpAddr::V6(n), IpAddr::V6(a)) => (n.to_bits(), a.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let Some(rest) = u32::checked_sub(bits, length) else {
        return false;
    };
    // A length of 0 shifts all 128 bits out.
    network.checked_shr(rest).unwrap_or(0) == address.checked_shr(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule, the host and port that are asked for, and whether the proxy is left out.
    const TABLE: [(&str, &str, u16, bool); 44] = [
        ("*", "hub.corp.example", 443, true),
        ("*", "10.1.2.3", 443, true),
        ("", "hub.corp.example", 443, false),
        (".", "hub.corp.example", 443, false),
        ("*.", "hub.corp.example", 443, false),
        // Names.
        ("hub.corp.example", "hub.corp.example", 443, true),
        ("corp.example", "hub.corp.example", 443, true),
        (".corp.example", "hub.corp.example", 443, true),
        ("*.corp.example", "hub.corp.example", 443, true),
        (".corp.example", "corp.example", 443, true),
        ("Corp.Example", "HUB.corp.example", 443, true),
        ("corp.example.", "hub.corp.example", 443, true),
        ("corp.example", "hub.corp.example.", 443, true),
        (" corp.example ", "hub.corp.example", 443, true),
        ("orp.example", "hub.corp.example", 443, false),
        ("hub.corp.example", "corp.example", 443, false),
        ("example", "hub.corp.example", 443, true),
        ("hub*", "hub.corp.example", 443, false),
        (".svc", "hub.linesman.svc", 443, true),
        // One port.
        ("hub.corp.example:8443", "hub.corp.example", 8443, true),
        (".corp.example:8443", "hub.corp.example", 8443, true),
        ("hub.corp.example:8443", "hub.corp.example", 443, false),
        ("hub.corp.example:https", "hub.corp.example", 443, false),
        ("10.1.2.3:8443", "10.1.2.3", 8443, true),
        ("10.1.2.3:8443", "10.1.2.3", 443, false),
        ("[fd00::1]:8443", "[fd00::1]", 8443, true),
        ("[fd00::1]:8443", "fd00::1", 443, false),
        // Addresses.
        ("10.1.2.3", "10.1.2.3", 443, true),
        ("10.1.2.3", "10.1.2.30", 443, false),
        ("2.3", "10.1.2.3", 443, false),
        ("fd00::1", "fd00:0:0::1", 443, true),
        ("[fd00::1]", "[fd00::1]", 443, true),
        ("10.1.2.3", "::ffff:10.1.2.3", 443, true),
        ("10.1.2.3", "hub.corp.example", 443, false),
        // Networks.
        ("10.0.0.0/8", "10.1.2.3", 443, true),
        ("10.1.2.3/8", "10.9.9.9", 443, true),
        ("10.0.0.0/8", "11.1.2.3", 443, false),
        ("10.1.2.3/32", "10.1.2.3", 443, true),
        ("0.0.0.0/0", "192.0.2.1", 443, true),
        ("0.0.0.0/0", "fd00::1", 443, false),
        ("fd00::/8", "fd12:3456::1", 443, true),
        ("::/0", "2001:db8::1", 443, true),
        ("10.0.0.0/33", "10.1.2.3", 443, false),
        ("10.0.0.0/8", "hub.corp.example", 443, false),
    ];

    #[test]
    fn a_list_may_be_written_on_several_lines() {
        for list in [
            "a.example,10.0.0.0/8,.svc",
            " a.example, 10.0.0.0/8 .svc,",
            "a.example,\n10.0.0.0/8,\n.svc\n",
            "a.example\r\n10.0.0.0/8\t.svc",
        ] {
            let read: Vec<&str> = rules(list).collect();
            assert_eq!(read, ["a.example", "10.0.0.0/8", ".svc"], "{list:?}");
        }
    }

    /// L12
    #[test]
    fn each_common_form_of_a_rule_counts() {
        for (rule, host, port, left_out) in TABLE {
            let rules = ["other.example".to_owned(), rule.to_owned()];
            assert_eq!(
                bypassed(&rules, host, port),
                left_out,
                "{rule} {host}:{port}"
            );
        }
        assert!(!bypassed(&[], "hub.corp.example", 443));
    }
}
