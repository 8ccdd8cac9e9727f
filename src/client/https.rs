//! What requests to a hub have in common: its address, TLS, and headers.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER};

use super::{Error, diagnose, proxy};
use crate::clock;
use crate::secret::Secret;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The hub's address from what a person wrote: `https://` may be left out, a path prefix may follow.
pub fn address(text: &str) -> Result<Url, Error> {
    let wrong = |reason: &str| Error::Address {
        url: text.to_owned(),
        reason: reason.to_owned(),
    };
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let mut url = Url::parse(full.trim_end_matches('/')).map_err(|e| wrong(&e.to_string()))?;
    if url.scheme() != "https" {
        return Err(wrong("the hub speaks HTTPS only"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(wrong("it holds more than host, port and path"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// A form-encoded query, decoded.
pub fn query_pairs(text: &str) -> Vec<(String, String)> {
    let mut url = Url::parse("x:/").expect("a constant URL");
    url.set_query(Some(text));
    url.query_pairs().into_owned().collect()
}

/// The HTTP client for a hub: TLS by aws-lc-rs, the environment's proxy settings, no redirects
/// (a token must not follow one).
pub fn http(ca: Option<&str>) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("linesman/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .proxy(proxy::of_environment())
        .redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = ca {
        builder = builder.tls_certs_only(roots(pem)?);
    }
    builder.build().map_err(|e| Error::Tls(diagnose::root(&e)))
}

/// The certificates in a PEM file; one without any is an error.
pub fn roots(pem: &str) -> Result<Vec<reqwest::Certificate>, Error> {
    let roots = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
    let roots = roots.map_err(|e| Error::Ca(diagnose::root(&e)))?;
    if roots.is_empty() {
        return Err(Error::Ca("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

pub(super) fn authorization(token: &Secret<String>) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub(super) fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// With the word that whatever is there may be changed: who calls did not look before.
pub(super) fn whatever(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(IF_MATCH, HeaderValue::from_static("*"));
    headers
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(RETRY_AFTER)?.to_str().ok()?;
    clock::retry_after(asked, clock::now())
}
