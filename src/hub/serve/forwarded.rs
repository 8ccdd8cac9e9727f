//! Whose request it is that came through a proxy. What `X-Forwarded-For` says counts only as far as proxies wrote it that the
//! operator trusts: each of them adds the address that it saw, so the last one that is not theirs is the client's.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::{HeaderMap, HeaderName};

use crate::address::network;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Addresses that are looked at: nobody has a longer way.
const MOST: usize = 32;

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    ip: IpAddr,
    bits: u8,
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is neither an address nor a network such as 10.0.0.0/8")]
pub struct NoCidr(String);

impl FromStr for Cidr {
    type Err = NoCidr;

    fn from_str(text: &str) -> Result<Self, NoCidr> {
        let no = || NoCidr(text.to_owned());
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits.parse().map_err(|_| no())?)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| no())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(no());
        }
        Ok(Self { ip, bits })
    }
}

impl Cidr {
    fn contains(self, ip: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.ip, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let differ = own.to_bits() ^ ip.to_bits();
                differ.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let differ = own.to_bits() ^ ip.to_bits();
                differ.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Of whose share of the places a connection is; None = nobody's, for many may come from there: it is a trusted proxy, or the hub's own
/// machine.
pub(super) fn whose(peer: IpAddr, trusted: &[Cidr]) -> Option<IpAddr> {
    let own = peer.to_canonical().is_loopback();
    let many = own || trusted.iter().any(|cidr| cidr.contains(peer));
    (!many).then(|| network(peer))
}

/// The client behind a connection from `peer`, whose request has these headers; its port is 0 where nobody knows it. The
/// header is spent: nobody behind this judges it again.
pub(super) fn client(peer: SocketAddr, headers: &mut HeaderMap, trusted: &[Cidr]) -> SocketAddr {
    let is_trusted = |ip: IpAddr| trusted.iter().any(|cidr| cidr.contains(ip));
    let mut client = peer;
    if is_trusted(peer.ip()) {
        let values: Vec<_> = headers.get_all(&FORWARDED_FOR).iter().collect();
        let words = values.iter().rev().flat_map(|value| {
            let text = value.to_str().unwrap_or_default();
            text.rsplit(',')
        });
        for word in words.take(MOST) {
            // What is no address was not written by a proxy that can be believed.
            let Some(before) = address(word.trim()) else {
                break;
            };
            client = before;
            if !is_trusted(before.ip()) {
                break;
            }
        }
    }
    headers.remove(&FORWARDED_FOR);
    client
}

fn address(word: &str) -> Option<SocketAddr> {
    let bare = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
    let ip = bare.unwrap_or(word).parse::<IpAddr>();
    match ip {
        Ok(ip) => Some(SocketAddr::new(ip, 0)),
        Err(_) => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(peer: &str, lines: &[&str]) -> String {
        let trusted = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"].map(|t| t.parse().unwrap());
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let client = client(peer.parse().unwrap(), &mut headers, &trusted);
        assert!(headers.is_empty());
        client.to_string()
    }

    #[test]
    fn many_may_come_from_a_proxy_and_from_the_hubs_own_machine() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        for (peer, expected) in [
            ("203.0.113.7", Some("203.0.113.7")),
            ("2001:db8:1:2:3::4", Some("2001:db8:1:2::")),
            ("10.0.0.1", None),
            ("::ffff:10.0.0.1", None),
            ("127.0.0.1", None),
            ("::1", None),
        ] {
            let expected = expected.map(|ip| ip.parse().unwrap());
            assert_eq!(whose(peer.parse().unwrap(), &trusted), expected, "{peer}");
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxys_is_the_clients() {
        for (peer, lines, is) in [
            // Nobody's word counts but a proxy's.
            ("203.0.113.7:5", &["198.51.100.9"][..], "203.0.113.7:5"),
            ("10.0.0.1:5", &[], "10.0.0.1:5"),
            ("10.0.0.1:5", &["198.51.100.9"], "198.51.100.9:0"),
            ("10.0.0.1:5", &["198.51.100.9:77"], "198.51.100.9:77"),
            ("[2001:db8::1]:5", &["[2001:db9::2]"], "[2001:db9::2]:0"),
            ("[::ffff:10.0.0.1]:5", &["198.51.100.9"], "198.51.100.9:0"),
            // What the client itself sent is before what the proxies added.
            ("10.0.0.1:5", &["6.6.6.6, 198.51.100.9"], "198.51.100.9:0"),
            (
                "10.0.0.1:5",
                &["6.6.6.6", "198.51.100.9, 10.2.2.2", "192.0.2.1"],
                "198.51.100.9:0",
            ),
            ("10.0.0.1:5", &["6.6.6.6, unknown"], "10.0.0.1:5"),
            ("10.0.0.1:5", &["6.6.6.6, , 10.3.3.3"], "10.3.3.3:0"),
            // All are proxies: the first of them asks for itself.
            ("10.0.0.1:5", &["10.9.9.9, 10.8.8.8"], "10.9.9.9:0"),
        ] {
            assert_eq!(clients(peer, lines), is, "{peer} {lines:?}");
        }
    }

    #[test]
    fn networks_hold_what_begins_with_their_bits() {
        let holds = |cidr: &str, ip: &str| {
            let cidr: Cidr = cidr.parse().unwrap();
            cidr.contains(ip.parse().unwrap())
        };
        assert!(holds("0.0.0.0/0", "203.0.113.7") && holds("::/0", "2001:db8::1"));
        assert!(holds("10.1.0.0/16", "10.1.255.255") && !holds("10.1.0.0/16", "10.2.0.0"));
        assert!(holds("10.1.2.3", "10.1.2.3") && !holds("10.1.2.3", "10.1.2.2"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1") && !holds("::/0", "203.0.113.7"));
        for no in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/x",
            "host",
        ] {
            assert!(no.parse::<Cidr>().is_err(), "{no}");
        }
    }
}
