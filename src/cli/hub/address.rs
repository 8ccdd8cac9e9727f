//! Where others find what the hub listens on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::Result;

use crate::cli::exit::{Code, Failure};
use crate::hub::PeerConfig;

/// Where to listen: names and ports alone are not addresses.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write ADDRESS:PORT, such as 0.0.0.0:8443 (any address of this machine), 127.0.0.1:8443 or [::]:8443".to_owned()
    })
}

/// Refuses an address of the hub that does not say that it is one: it is written into each cluster, and any word is a host.
pub(super) fn https(url: &str) -> Result<(), Failure> {
    const SCHEME: &str = "https://";
    let scheme = url.get(..SCHEME.len());
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
        return Ok(());
    }
    let text = format!("--url is {url}");
    let next = "give the address at which clusters and people reach the hub: https://HOST[:PORT]";
    Err(Failure::new(Code::Usage, text, next))
}

/// What to say of a hub that others look for on another port than it listens on; None = it is the same.
pub(super) fn other_port(url: &str, listen: SocketAddr) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let (told, own) = (url.port_u16().unwrap_or(443), listen.port());
    (told != own).then(|| {
        format!(
            "clusters and people are told port {told} (--url), and the hub listens on port {own} (--listen): something has to pass \
             connections on"
        )
    })
}

/// Where the other replicas find this one; None = it is alone.
pub(super) fn peer(listen: Option<SocketAddr>, url: Option<String>) -> Result<Option<PeerConfig>> {
    let Some(listen) = listen else {
        return Ok(None);
    };
    let url = url.unwrap_or_else(|| reached_at(listen).to_string());
    let authority: Option<http::uri::Authority> = url.parse().ok();
    let whole = |a: &http::uri::Authority| a.port_u16().is_some() && !a.as_str().contains('@');
    if !authority.is_some_and(|authority| whole(&authority)) {
        let text = format!("--peer-url is {url}");
        let next =
            "give the host and port at which the other replicas reach --peer-listen, HOST:PORT";
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    Ok(Some(PeerConfig { listen, url }))
}

/// Where others find a listener: the address it was given, or this machine's own where that was "any".
pub(super) fn reached_at(listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        SocketAddr::new(own_address(), listen.port())
    } else {
        listen
    }
}

/// The built-in Git server, as others find it, without its one repository.
pub(super) fn git(url: &str) -> Result<String> {
    let bare = url.trim_end_matches('/');
    let bare = bare.strip_suffix("/catalog.git").unwrap_or(bare);
    let bare = bare.trim_end_matches('/');
    let parsed: Option<http::Uri> = bare.parse().ok();
    if parsed.is_some_and(|parsed| is_bare(&parsed)) {
        return Ok(bare.to_owned());
    }
    let text = format!("--git-url is {url}");
    let next = "give user, host and port at which clusters reach --git-listen: ssh://git@HOST:PORT";
    Err(Failure::new(Code::Usage, text, next).into())
}

fn is_bare(url: &http::Uri) -> bool {
    let whole = |authority: &http::uri::Authority| {
        let (user, place) = authority.as_str().split_once('@').unwrap_or_default();
        let port = place == authority.host() || authority.port_u16().is_some();
        !user.is_empty() && !user.contains(':') && port
    };
    url.scheme_str() == Some("ssh")
        && url.authority().is_some_and(whole)
        && url.host().is_some_and(|host| !host.is_empty())
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
}

/// The address that this machine would send from. Connecting a UDP socket chooses it and sends nothing.
fn own_address() -> IpAddr {
    let chosen = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // TEST-NET-1 (RFC 5737): any address that the default route serves would do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    chosen().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |a: SocketAddr| a.ip())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hubs_url_says_that_it_is_https() {
        for right in ["https://hub.example.org:8443/", "HTTPS://hub.example.org"] {
            assert_eq!(super::https(right), Ok(()), "{right}");
        }
        for wrong in ["nonsense", "hub.example.org:8443", "http://h", ""] {
            let failure = super::https(wrong).unwrap_err();
            assert_eq!(failure.message, format!("--url is {wrong}"));
        }
    }

    #[test]
    fn another_port_than_the_hub_listens_on_is_told() {
        let told = |url| super::other_port(url, "0.0.0.0:8443".parse().unwrap());
        assert_eq!(told("https://hub.example.org:8443"), None);
        assert_eq!(
            told("https://hub.example.org").as_deref(),
            Some(
                "clusters and people are told port 443 (--url), and the hub listens on port 8443 (--listen): \
                 something has to pass connections on"
            )
        );
    }

    #[test]
    fn the_git_servers_url_is_user_host_and_port() {
        for (url, bare) in [
            ("ssh://git@hub.example.org", "ssh://git@hub.example.org"),
            (
                "ssh://git@hub.example.org:2222/",
                "ssh://git@hub.example.org:2222",
            ),
            (
                "ssh://git@[fd00::1]:2222/catalog.git",
                "ssh://git@[fd00::1]:2222",
            ),
        ] {
            assert_eq!(super::git(url).unwrap(), bare);
        }
        for wrong in [
            "",
            "hub.example.org:2222",
            "git@hub.example.org:catalog.git",
            "https://git@hub.example.org",
            "ssh://hub.example.org:2222",
            "ssh://git:word@hub.example.org",
            "ssh://git@hub.example.org/team/catalog.git",
            "ssh://git@hub.example.org:2222?x=y",
            "ssh://git@hub.example.org:99999",
        ] {
            let error = super::git(wrong).unwrap_err().to_string();
            assert_eq!(error, format!("--git-url is {wrong}"));
        }
    }

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        assert_eq!(super::listen("[::]:8443").unwrap().port(), 8443);
        for wrong in ["8443", ":8443", "localhost:8443", "0.0.0.0"] {
            assert!(super::listen(wrong).is_err_and(|why| why.contains("0.0.0.0:8443")));
        }
    }

    #[test]
    fn one_of_several_replicas_says_where_the_others_reach_it() {
        let peer = |listen: &str, url: Option<&str>| {
            super::peer(Some(listen.parse().unwrap()), url.map(str::to_owned))
        };
        let own = peer("10.0.0.1:8444", None).unwrap().unwrap();
        assert_eq!(own.url, "10.0.0.1:8444");
        let named = peer("0.0.0.0:8444", Some("hub-0.hub:8444")).unwrap();
        assert_eq!(named.unwrap().url, "hub-0.hub:8444");
        for wrong in ["https://hub-0:8444", "hub-0", "a@hub-0:1", ""] {
            let why = peer("0.0.0.0:8444", Some(wrong)).unwrap_err();
            assert_eq!(why.to_string(), format!("--peer-url is {wrong}"));
        }
    }
}
