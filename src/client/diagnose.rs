//! Why a hub could not be reached, and what to do about it.

use std::error::Error as _;
use std::fmt;
use std::io;

/// The closed set of reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Dns(String),
    Refused(String),
    Timeout,
    /// The certificate's issuer is none of ours.
    UntrustedIssuer,
    /// The certificate's issuer is not the one that was named for this hub.
    OtherIssuer,
    /// The certificate is a CA's own, which no client takes as a server's.
    CaAsServer,
    /// Another certificate error: expired, wrong name.
    Certificate(String),
    Tls(String),
    Proxy(String),
    /// The connection ended in the middle of the exchange.
    Lost(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) => write!(f, "the hub's name does not resolve: {text}"),
            Self::Refused(text) => write!(f, "no connection to the hub: {text}"),
            Self::Timeout => f.write_str("the hub does not answer in time"),
            Self::UntrustedIssuer => f.write_str("the hub's certificate comes from an unknown CA"),
            Self::OtherIssuer => f.write_str(
                "the hub's certificate does not come from the CA that was given for it (--ca, LINESMAN_CA_FILE, or at the login)",
            ),
            Self::CaAsServer => f.write_str(
                "the hub's certificate is not accepted: it is a CA's own, and nobody takes that as a server's",
            ),
            Self::Certificate(text) => write!(f, "the hub's certificate is not accepted: {text}"),
            Self::Tls(text) => write!(f, "no TLS session with the hub: {text}"),
            Self::Proxy(text) => write!(f, "the proxy does not carry the connection: {text}"),
            Self::Lost(text) => write!(f, "the connection to the hub broke: {text}"),
        }
    }
}

impl Cause {
    /// What a person does next.
    pub fn next(&self, hub: &str) -> String {
        let mend = self.mend(hub);
        match self {
            Self::Refused(_) | Self::Timeout | Self::Lost(_) => {
                // Of the first login no session is kept by which the doctor would know the hub.
                let named = hub.contains("://").then(|| format!(" --hub {hub}"));
                let named = named.unwrap_or_default();
                format!("{mend}; 'linesman doctor{named}' looks closer")
            }
            Self::Dns(_)
            | Self::UntrustedIssuer
            | Self::OtherIssuer
            | Self::CaAsServer
            | Self::Certificate(_)
            | Self::Tls(_)
            | Self::Proxy(_) => mend,
        }
    }

    /// The same for whoever runs `linesman doctor` already.
    pub fn mend(&self, hub: &str) -> String {
        match self {
            Self::Dns(_) => format!("check the name in {hub}, and this machine's DNS"),
            Self::Refused(_) => format!("check that the hub runs and listens at {hub}"),
            Self::Timeout | Self::Lost(_) => {
                format!("check the way to {hub} (firewall, HTTPS_PROXY)")
            }
            Self::UntrustedIssuer => {
                "give the hub's CA with --ca FILE (the hub keeps it in <data>/ca.crt)".to_owned()
            }
            Self::OtherIssuer => {
                format!(
                    "give the CA of {hub} itself with --ca FILE: the hub keeps it in <data>/ca.crt"
                )
            }
            Self::CaAsServer => {
                "have a certificate with basicConstraints=CA:FALSE made for the hub's --tls-cert, or start it without, so that it \
                 makes its own"
                    .to_owned()
            }
            Self::Certificate(_) => {
                format!(
                    "use the name that the hub's certificate is for, or start the hub with --url {hub}"
                )
            }
            Self::Tls(_) => format!("check that {hub} is the hub's HTTPS port"),
            Self::Proxy(_) => "check HTTPS_PROXY, or name the hub in NO_PROXY".to_owned(),
        }
    }

    /// The same call may succeed a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Dns(_) | Self::Refused(_) | Self::Timeout | Self::Proxy(_) | Self::Lost(_) => {
                true
            }
            Self::UntrustedIssuer
            | Self::OtherIssuer
            | Self::CaAsServer
            | Self::Certificate(_)
            | Self::Tls(_) => false,
        }
    }

    /// The same of a client that trusts the roots alone that were named to it.
    #[must_use]
    pub(super) fn by_own_roots(self) -> Self {
        match self {
            Self::UntrustedIssuer => Self::OtherIssuer,
            other => other,
        }
    }

    /// No byte of the request can have arrived.
    pub(super) fn is_before_sending(&self) -> bool {
        match self {
            Self::Dns(_) | Self::Refused(_) => true,
            Self::Timeout
            | Self::UntrustedIssuer
            | Self::OtherIssuer
            | Self::CaAsServer
            | Self::Certificate(_)
            | Self::Tls(_)
            | Self::Proxy(_)
            | Self::Lost(_) => false,
        }
    }
}

/// Reads the reason out of the error's chain.
pub fn cause(error: &reqwest::Error) -> Cause {
    let text = root(error);
    let mut link: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(e) = link {
        if let Some(tls) = tls(e) {
            return certificate(tls);
        }
        let says = e.to_string();
        if says.contains("dns error") {
            return Cause::Dns(text);
        }
        if says.contains("tunnel") {
            return Cause::Proxy(text);
        }
        link = e.source();
    }
    match (error.is_timeout(), error.is_connect()) {
        (true, _) => Cause::Timeout,
        (_, true) => Cause::Refused(text),
        _ => Cause::Lost(text),
    }
}

/// rustls errors travel inside io errors.
fn tls<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref::<rustls::Error>().or_else(|| tls(inner))
}

fn certificate(error: &rustls::Error) -> Cause {
    use rustls::{CertificateError, Error};
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Cause::UntrustedIssuer,
        // The platform's verifier has its own errors; its text is all there is.
        Error::InvalidCertificate(CertificateError::Other(e))
            if e.to_string().contains("UnknownIssuer") =>
        {
            Cause::UntrustedIssuer
        }
        Error::InvalidCertificate(CertificateError::Other(e))
            if e.to_string().contains("CaUsedAsEndEntity") =>
        {
            Cause::CaAsServer
        }
        Error::InvalidCertificate(e) => Cause::Certificate(e.to_string()),
        e => Cause::Tls(e.to_string()),
    }
}

/// The innermost error: the outer ones only repeat the URL.
pub(super) fn root(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut link = error.source();
    while let Some(e) = link {
        text = e.to_string();
        link = e.source();
    }
    text
}
