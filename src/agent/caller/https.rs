//! HTTPS to the hub: before there is a line, beside one, and to whoever answers in the hub's place.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::BytesMut;
use http::header::CONTENT_TYPE;

use super::{Answer, Call, DEADLINE, retry_after};
use crate::agent::link::{ProxyConfig, is_old_tls};
use crate::lifetime::hearts::Heart;
use crate::manifests::bypass::bypassed;
use crate::wire::api::SIGNATURE_HEADER;

const CONNECT: Duration = Duration::from_secs(10);

/// HTTPS to the hub, with its CA and the cluster's proxy.
#[derive(Debug, Clone)]
pub struct Https {
    client: reqwest::Client,
    urls: Vec<String>,
    /// Of the task that calls, where it has one.
    heart: Option<Heart>,
}

impl Https {
    /// `ca` is PEM: where it is not empty, its roots are the only ones.
    pub fn new(urls: &[String], ca: &str, proxy: Option<&ProxyConfig>) -> Result<Self> {
        let mut builder = builder();
        if !ca.trim().is_empty() {
            let roots = reqwest::Certificate::from_pem_bundle(ca.as_bytes())
                .context("the hub's ca.crt is not PEM")?;
            // As the line does.
            builder = builder
                .tls_certs_only(roots)
                .tls_version_min(reqwest::tls::Version::TLS_1_3);
        }
        Self::with(builder, urls, proxy)
    }

    /// Takes whatever certificate there is: for questions that give nothing away, of whose answers nothing is believed but
    /// what the hub signed.
    pub fn unverified(urls: &[String], proxy: Option<&ProxyConfig>) -> Result<Self> {
        Self::with(builder().tls_danger_accept_invalid_certs(true), urls, proxy)
    }

    fn with(
        mut builder: reqwest::ClientBuilder,
        urls: &[String],
        proxy: Option<&ProxyConfig>,
    ) -> Result<Self> {
        if let Some(proxy) = proxy {
            builder = builder.proxy(through(proxy)?);
        }
        let client = builder.build().context("prepare HTTPS to the hub")?;
        let urls = urls
            .iter()
            .map(|u| u.trim_end_matches('/').to_owned())
            .collect();
        Ok(Self {
            client,
            urls,
            heart: None,
        })
    }

    /// The same for a task with this heart, which knows how long an answer may take.
    #[must_use]
    pub fn of(&self, heart: Option<&Heart>) -> Self {
        Self {
            heart: heart.cloned(),
            ..self.clone()
        }
    }

    /// Sends to the first URL that can be reached.
    pub async fn send(&self, call: &Call, signature: Option<String>) -> Result<Answer> {
        let mut last = anyhow!("no URL of the hub is known");
        for url in &self.urls {
            match self.send_to(url, call, signature.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn send_to(&self, url: &str, call: &Call, signature: Option<String>) -> Result<Answer> {
        let _wait = self.heart.as_ref().map(|heart| heart.wait(DEADLINE));
        let mut request = self
            .client
            .request(call.method.clone(), format!("{url}{}", call.path));
        if !call.body.is_empty() {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(call.body.clone());
        }
        if let Some(signature) = signature {
            request = request.header(SIGNATURE_HEADER, signature);
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| anyhow!("reach {url}: {}", root(&error)))?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.context("read the hub's answer")? {
            if body.len() + chunk.len() > call.limit {
                bail!("the hub's answer is longer than {} bytes", call.limit);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status: response.status(),
            retry_after: retry_after(response.headers()),
            body: body.freeze(),
        })
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .timeout(DEADLINE)
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
}

/// The cause below the layers of the HTTP client, which all say the same.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    if is_old_tls(error) {
        return "it speaks no TLS 1.3; turn that on at what stands before the hub".to_owned();
    }
    cause.to_string()
}

fn through(config: &ProxyConfig) -> Result<reqwest::Proxy> {
    let address: reqwest::Url = format!("http://{}", config.address)
        .parse()
        .context("the proxy's address is not host:port")?;
    let rules = config.bypass.clone();
    let mut proxy = reqwest::Proxy::custom(move |url| {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        (!bypassed(&rules, host, port)).then(|| address.clone())
    });
    if let Some(credentials) = &config.credentials {
        let text = credentials.expose();
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        proxy = proxy.basic_auth(user, password);
    }
    Ok(proxy)
}
