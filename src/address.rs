//! Whose an address is, for limits and counts: of IPv6 the network, of which anyone has 2^64 addresses.

use std::net::{IpAddr, SocketAddr};

/// The address itself, or the /64 that it is of.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let network = ip.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        ip => ip,
    }
}

/// The same of a text, with or without a port; what is no address stands for itself.
pub fn of(remote: &str) -> String {
    let with_port = remote.parse::<SocketAddr>().map(|addr| addr.ip());
    match with_port.or_else(|_| remote.parse()) {
        Ok(ip) => network(ip).to_string(),
        Err(_) => remote.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_own_or_its_networks() {
        for (remote, is) in [
            ("192.0.2.1:5", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:5", "192.0.2.1"),
            ("[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("[::1]:5", "::1"),
            ("", ""),
            ("elsewhere", "elsewhere"),
        ] {
            assert_eq!(of(remote), is, "{remote}");
        }
    }
}
