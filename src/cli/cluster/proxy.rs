//! The proxy on an agent's way to its hub, as `cluster add` and `readopt` are told of it.

use std::path::PathBuf;

use anyhow::Result;

use crate::cli::connect::{Connect, read_proxy};
use crate::cli::exit::{Code, Failure};
use crate::manifests::proxy::{self, ProxyError};

#[derive(Debug, clap::Args)]
pub(super) struct Way {
    /// Proxy for the agent's way to the hub: `http://host[:port]`
    #[arg(long, value_name = "URL")]
    https_proxy: Option<String>,
    /// File with the URL of a proxy that wants a password ('-' = stdin): `http://user:password@host[:port]`, with `%40` for an `@` in the password
    #[arg(long, value_name = "FILE", conflicts_with = "https_proxy")]
    https_proxy_file: Option<PathBuf>,
    /// What the agent reaches without the proxy: names with what is below them, addresses, networks (`10.0.0.0/8`), `*`; with `:port` for one port
    #[arg(long, value_name = "LIST")]
    pub no_proxy: Option<String>,
}

impl Way {
    /// None = as it was; empty = none. Before the token is read, which may come from stdin, too.
    pub(super) fn url(&self, connect: &Connect) -> Result<Option<String>> {
        if let Some(path) = &self.https_proxy_file {
            connect.leaves_stdin_to(path, "the proxy's URL")?;
            let url = read_proxy(path)?.into_inner();
            proxy::parse(&url).map_err(|wrong| no_proxy("--https-proxy-file", wrong))?;
            return Ok(Some(url));
        }
        let url = self.https_proxy.clone();
        if let Some(url) = url.as_deref().filter(|url| !url.is_empty()) {
            without_password(url)?;
        }
        Ok(url)
    }
}

/// Arguments are seen by other users of the machine, and kept by shells.
fn without_password(url: &str) -> Result<(), Failure> {
    let proxy = proxy::parse(url).map_err(|wrong| no_proxy("--https-proxy", wrong))?;
    if proxy.credentials.is_none_or(|c| !c.expose().contains(':')) {
        return Ok(());
    }
    Err(Failure::new(
        Code::Usage,
        "--https-proxy has a password, which the list of processes and the shell's history then show",
        "put the URL into a file, or pipe it: --https-proxy-file FILE ('-' = stdin)",
    ))
}

/// None of the URL is shown: it may hold a password.
fn no_proxy(flag: &str, wrong: ProxyError) -> Failure {
    let next = "give http://host[:port]; where the proxy wants a password, http://user:password@host[:port] in a file, by \
                --https-proxy-file";
    Failure::new(Code::Usage, format!("{flag}: {wrong}"), next)
}
