//! TCP, the proxy where there is one, and TLS.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};

use super::{DialError, ProxyConfig};
use crate::manifests::bypass::bypassed;
use crate::tcp;
use crate::tunnel::driver::{Ahead, TLS_BUFFER, tune};

/// Bytes of the longest answer to CONNECT.
const MAX_ANSWER: usize = 8 << 10;
const UNAUTHORISED: &str = "the proxy wants other credentials (407); give its URL with them to 'linesman cluster readopt' with --https-proxy-file, \
     and apply that YAML";

/// Where a hub is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// As it stands in the URL: `host` or `host:port`.
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The URL's path without a slash at its end.
    pub(super) prefix: String,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, DialError> {
        let wrong = || DialError::Url(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri
            .authority()
            .filter(|_| uri.scheme_str() == Some("https"))
            .ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(wrong());
        }
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(443),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// The connection below the WebSocket.
pub(super) type Tls = TlsStream<Ahead<TcpStream>>;

/// A TLS connection to the hub.
pub(super) async fn connect(
    target: &Target,
    ca: &str,
    proxy: Option<&ProxyConfig>,
) -> Result<Tls, DialError> {
    let config = tls(ca)?;
    let name = ServerName::try_from(target.host.clone())
        .map_err(|_| DialError::Url(target.authority.clone()))?;
    let proxy = proxy.filter(|proxy| !bypassed(&proxy.bypass, &target.host, target.port));
    let socket = match proxy {
        None => reach((target.host.as_str(), target.port), &target.authority).await?,
        Some(proxy) => through(proxy, target).await?,
    };
    let mut tls = TlsConnector::from(config)
        .connect(name, Ahead::new(socket))
        .await
        .map_err(|source| {
            if is_old_tls(&source) {
                return DialError::OldTls(target.authority.clone());
            }
            DialError::Connect {
                what: format!("TLS with {}", target.authority),
                source,
            }
        })?;
    tls.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    Ok(tls)
}

async fn reach(address: impl ToSocketAddrs + Copy, name: &str) -> Result<TcpStream, DialError> {
    let connecting = async {
        let found = tcp::lookup(address).await?;
        tcp::connect(&found).await
    };
    let socket = connecting.await.map_err(|source| DialError::Connect {
        what: format!("connect to {name}"),
        source,
    })?;
    tune(&socket);
    Ok(socket)
}

/// Asks a proxy to CONNECT (RFC 9110 §9.3.6).
async fn through(proxy: &ProxyConfig, target: &Target) -> Result<TcpStream, DialError> {
    let broken = |source| DialError::Connect {
        what: format!("CONNECT through proxy {}", proxy.address),
        source,
    };
    let mut socket = reach(proxy.address.as_str(), &format!("proxy {}", proxy.address)).await?;
    let host = if target.host.contains(':') {
        format!("[{}]", target.host)
    } else {
        target.host.clone()
    };
    let port = target.port;
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(credentials) = &proxy.credentials {
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(&basic(credentials.expose()));
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    socket.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err(broken(io::Error::other("the answer's head is too long")));
        }
        // By the byte: what follows the head belongs to TLS.
        answer.push(socket.read_u8().await.map_err(broken)?);
    }
    let line = answer
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    made(&line).map_err(|why| broken(io::Error::other(why)))?;
    Ok(socket)
}

/// Whether a proxy that answered so made the tunnel, as with each 2xx (RFC 9110 §9.3.6), else why not.
fn made(line: &str) -> Result<(), String> {
    let code = line.split_whitespace().nth(1).unwrap_or_default();
    match code.parse::<u16>() {
        Ok(200..=299) => Ok(()),
        Ok(407) => Err(UNAUTHORISED.to_owned()),
        _ => Err(format!("the proxy answered '{line}'")),
    }
}

/// What a proxy is shown of `user:password`. The colon is there without a password, too (RFC 7617 §2).
fn basic(credentials: &str) -> String {
    let colon = if credentials.contains(':') { "" } else { ":" };
    STANDARD.encode(format!("{credentials}{colon}"))
}

/// Whether a connection failed because the other end speaks nothing above TLS 1.2.
pub fn is_old_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    use tokio_rustls::rustls::{AlertDescription, PeerIncompatible};
    tls_error(error, |error| {
        matches!(
            error,
            TlsError::AlertReceived(AlertDescription::ProtocolVersion)
                | TlsError::PeerIncompatible(
                    PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                )
        )
    })
}

/// Whether a connection failed by the other end's certificate.
pub(super) fn is_foreign(error: &(dyn std::error::Error + 'static)) -> bool {
    tls_error(error, |error| {
        matches!(error, TlsError::InvalidCertificate(_))
    })
}

/// Whether one of the causes is such an error of TLS.
fn tls_error(
    error: &(dyn std::error::Error + 'static),
    is_such: impl Fn(&TlsError) -> bool,
) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref().is_some_and(&is_such) {
            return true;
        }
        // What an I/O error carries is not its source, and may be another one.
        let carried = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match carried {
            Some(carried) => Some(carried),
            None => error.source(),
        };
    }
    false
}

/// A pinned CA never falls back to the system's roots, nor to TLS 1.2: it is the hub's own, or of the hub's operator, who sees to
/// what stands before it. A certificate that everybody trusts may be that of a balancer nobody can ask for more.
fn tls(ca: &str) -> Result<Arc<ClientConfig>, DialError> {
    let wrong = |text: String| DialError::Tls(text);
    let mut config = if ca.trim().is_empty() {
        ClientConfig::with_platform_verifier().map_err(|error| wrong(error.to_string()))?
    } else {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            let certificate =
                certificate.map_err(|_| wrong("the hub's CA is not PEM".to_owned()))?;
            roots
                .add(certificate)
                .map_err(|error| wrong(format!("the hub's CA: {error}")))?;
        }
        ClientConfig::builder_with_protocol_versions(&[&TLS13])
            .with_root_certificates(roots)
            .with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::version::TLS12;
    use tokio_rustls::rustls::{ProtocolVersion, ServerConfig, SupportedProtocolVersion};

    use super::*;
    use crate::agent::caller::{Call, Https};

    #[test]
    fn urls_keep_their_authority_and_prefix() {
        let target = Target::parse("https://hub.example:8443/fleet/").unwrap();
        assert_eq!(
            target,
            Target {
                authority: "hub.example:8443".into(),
                host: "hub.example".into(),
                port: 8443,
                prefix: "/fleet".into()
            }
        );
        assert_eq!(Target::parse("https://[::1]").unwrap().host, "::1");
        for wrong in [
            "http://hub",
            "hub",
            "https://",
            "https://u:p@hub",
            "ssh://hub",
        ] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// L12
    #[test]
    fn each_2xx_of_a_proxy_makes_the_tunnel() {
        for line in [
            "HTTP/1.1 200 Connection established",
            "HTTP/1.0 200",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 299 Whatever",
        ] {
            assert_eq!(made(line), Ok(()), "{line}");
        }
        for line in ["", "HTTP/1.1", "HTTP/1.1 302 Found", "HTTP/1.1 2000", "200"] {
            assert_eq!(made(line), Err(format!("the proxy answered '{line}'")));
        }
        let asked = made("HTTP/1.1 407 Proxy Authentication Required");
        assert_eq!(asked, Err(UNAUTHORISED.to_owned()));
    }

    /// L12: HTTPS shows a proxy the same.
    #[test]
    fn a_user_without_a_password_is_shown_as_one() {
        let shown = ["user:p@ss", "user:", "user"].map(basic);
        assert_eq!(shown, ["dXNlcjpwQHNz", "dXNlcjo=", "dXNlcjo="]);
    }

    /// One connection's end of a server with these versions, and the certificate to trust.
    async fn serving(
        versions: &[&'static SupportedProtocolVersion],
    ) -> (Target, String, JoinSet<()>) {
        drop(aws_lc_rs::default_provider().install_default());
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_protocol_versions(versions)
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                drop(acceptor.accept(socket).await);
            }
        });
        (Target::parse(&url).unwrap(), made.cert.pem(), tasks)
    }

    /// By the line and by HTTPS alike.
    #[tokio::test]
    async fn with_a_given_ca_nothing_below_tls_1_3_is_spoken_and_the_error_says_so() {
        let (target, ca, _server) = serving(&[&TLS12]).await;
        let error = connect(&target, &ca, None).await.err().unwrap();
        let said = format!(
            "'{}' speaks no TLS 1.3, and a hub whose CA is given is dialled with nothing less; turn it on at what stands before the hub",
            target.authority
        );
        assert_eq!(error.chain(), said);
        let url = format!("https://{}", target.authority);
        let https = Https::new(std::slice::from_ref(&url), &ca, None).unwrap();
        let error = https.send(&Call::get("/v1/hub"), None).await.unwrap_err();
        let said = format!(
            "reach {url}: it speaks no TLS 1.3; turn that on at what stands before the hub"
        );
        assert_eq!(error.to_string(), said);
        let (target, ca, _server) = serving(&[&TLS12, &TLS13]).await;
        let tls = connect(&target, &ca, None).await.unwrap();
        assert_eq!(
            tls.get_ref().1.protocol_version(),
            Some(ProtocolVersion::TLSv1_3)
        );
    }
}
