//! Fetches a published file over HTTPS: no credentials, bounded in size and time, through the environment's proxy.

use std::fmt;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};

use super::{diagnose, proxy};

const CONNECT: Duration = Duration::from_secs(10);
/// For a whole file, redirects included.
const WHOLE: Duration = Duration::from_mins(2);
/// A release's file is one or two away from its address.
const REDIRECTS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("read the CA certificate of the mirror: {0}")]
    Ca(String),
    #[error("set up TLS: {0}")]
    Tls(String),
    #[error("fetch {url}: {cause}")]
    Unreachable { url: String, cause: String },
    #[error("fetch {url}: it led on more than {REDIRECTS} times")]
    Redirects { url: String },
    #[error("fetch {url}: it led to '{to}', which is not https")]
    Downgrade { url: String, to: String },
    #[error("fetch {url}: HTTP {status}")]
    Status { url: String, status: StatusCode },
    #[error("fetch {url}: it is larger than {limit} bytes")]
    TooLarge { url: String, limit: usize },
}

impl FetchError {
    /// What a person does next.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Ca(_) => "give a PEM file with --ca-file",
            Self::Tls(_) => "install the package ca-certificates, or give --ca-file",
            Self::Unreachable { .. } => {
                "check the way there (HTTPS_PROXY, --ca-file), name a mirror with --from URL, or fetch the file elsewhere \
                 and import that"
            }
            Self::Status { status, .. } if *status == StatusCode::NOT_FOUND => {
                "check the version, and that the mirror has it in the same place as the project"
            }
            Self::Status { .. } => "try again later, or name a mirror with --from URL",
            Self::Redirects { .. } | Self::Downgrade { .. } | Self::TooLarge { .. } => {
                "check the mirror, or fetch the file elsewhere and import that"
            }
        }
    }
}

/// What ended a chain of redirects, carried through the client's own error.
#[derive(Debug)]
enum Stopped {
    TooMany,
    Downgrade(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => f.write_str("too many redirects"),
            Self::Downgrade(to) => write!(f, "led to {to}"),
        }
    }
}

impl std::error::Error for Stopped {}

/// Fetches files; `ca` is PEM, these roots only, none = the system's.
#[derive(Debug, Clone)]
pub struct Fetcher {
    http: reqwest::Client,
}

impl Fetcher {
    pub fn new(ca: Option<&str>) -> Result<Self, FetchError> {
        let follow = Policy::custom(|attempt| {
            let next = attempt.url();
            if next.scheme() != "https" {
                let to = next.to_string();
                return attempt.error(Stopped::Downgrade(to));
            }
            if attempt.previous().len() > REDIRECTS {
                return attempt.error(Stopped::TooMany);
            }
            attempt.follow()
        });
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("linesman/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(WHOLE)
            .proxy(proxy::of_environment())
            .redirect(follow);
        if let Some(pem) = ca {
            let roots = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|e| FetchError::Ca(diagnose::root(&e)))?;
            if roots.is_empty() {
                return Err(FetchError::Ca("it holds no certificate".to_owned()));
            }
            builder = builder.tls_certs_only(roots);
        }
        let http = builder
            .build()
            .map_err(|e| FetchError::Tls(diagnose::root(&e)))?;
        Ok(Self { http })
    }

    /// The whole file, no longer than `limit` bytes.
    pub async fn fetch(&self, address: &str, limit: usize) -> Result<Vec<u8>, FetchError> {
        let url = || address.to_owned();
        let unreachable = |cause: String| FetchError::Unreachable { url: url(), cause };
        let parsed = Url::parse(address).map_err(|e| unreachable(e.to_string()))?;
        if parsed.scheme() != "https" {
            let to = url();
            return Err(FetchError::Downgrade { url: url(), to });
        }
        let broken = |e: reqwest::Error| match stopped(&e) {
            Some(Stopped::TooMany) => FetchError::Redirects { url: url() },
            Some(Stopped::Downgrade(to)) => FetchError::Downgrade {
                url: url(),
                to: to.clone(),
            },
            None if e.is_timeout() => unreachable("no answer in time".to_owned()),
            None => unreachable(diagnose::root(&e)),
        };
        let mut response = self.http.get(parsed).send().await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            return Err(FetchError::Status { url: url(), status });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > limit {
                return Err(FetchError::TooLarge { url: url(), limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn stopped(error: &reqwest::Error) -> Option<&Stopped> {
    let mut link: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(cause) = link {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        link = cause.source();
    }
    None
}
