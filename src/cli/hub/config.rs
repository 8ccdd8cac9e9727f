//! The hub's configuration, from its flags.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::address::{self, peer, reached_at};
use super::{Args, GitOverLine, IdentityRecovery};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::client;
use crate::hub::gitline::Allowed;
use crate::hub::rotation::KeyPolicy;
use crate::hub::tls::TlsSource;
use crate::hub::{Bounds, HubConfig};

/// Keys that are replaced more often would be replaced all the time.
const LEAST_KEY_AGE: Duration = Duration::from_hours(24);

/// For running requests when a hub ends that is alone: nobody is served until the next one has the database.
pub(super) const DRAIN: Duration = Duration::from_secs(10);
/// The same of one replica of several.
pub(super) const DRAIN_AMONG_OTHERS: Duration = Duration::from_mins(10);

pub(super) fn config(args: Args) -> Result<HubConfig> {
    let url = match &args.url {
        Some(url) => {
            address::https(url)?;
            client::address(url)?
        }
        None => client::address(&format!("https://{}", reached_at(args.listen)))?,
    };
    let host = url.host_str().unwrap_or("localhost").to_owned();
    let port = args.git_listen.port();
    let git_url = args.git_url;
    let git_url = address::git(&git_url.unwrap_or_else(|| format!("ssh://git@{host}:{port}")))?;
    let tls = match (args.tls_cert, args.tls_key) {
        (Some(cert), Some(key)) => TlsSource::Files {
            cert,
            key,
            ca: args.tls_ca,
        },
        // The hub adds the names of its URL and listening address itself.
        _ => TlsSource::Own { names: Vec::new() },
    };
    let peer = peer(args.peer_listen, args.peer_url)?;
    let records = args.database.config(peer.is_some())?;
    let drain = match &peer {
        None => DRAIN,
        Some(_) => DRAIN_AMONG_OTHERS,
    };
    Ok(HubConfig {
        bounds: Bounds {
            requests: args.requests.config(),
            ..Bounds::default()
        },
        data: std::path::absolute(&args.data).context("find the data directory")?,
        records,
        url: url.as_str().trim_end_matches('/').to_owned(),
        listen: args.listen,
        trusted_proxies: args.trusted_proxies.into(),
        health_listen: args.health_listen,
        git_listen: args.git_listen,
        git_url,
        tls,
        agent_image: args.agent_image,
        offline_after: args.offline_after,
        drain: args.drain.unwrap_or(drain),
        git_over_line: match args.git_over_line {
            GitOverLine::Auto => Allowed::Auto,
            GitOverLine::Asked => Allowed::Asked,
        },
        keys: KeyPolicy {
            recovery: args.identity_recovery == IdentityRecovery::Auto,
            ..key_policy(args.rotate_keys_after)?
        },
        audit: args.audit.config()?,
        grants: args.grants.config(),
        sessions: args.oidc.sessions(),
        oidc: args.oidc.config()?,
        notify: args.notify.config()?,
        peer,
    })
}

fn key_policy(rotate_after: Duration) -> Result<KeyPolicy> {
    if !rotate_after.is_zero() && rotate_after < LEAST_KEY_AGE {
        let text = format!(
            "--rotate-keys-after is {}, less than {}",
            duration::show(rotate_after),
            duration::show(LEAST_KEY_AGE)
        );
        let next = "give a longer time, or 0 to replace keys on demand only";
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    let max_age = (!rotate_after.is_zero()).then(|| rotate_after.try_into());
    Ok(KeyPolicy {
        max_age: max_age.transpose().context("--rotate-keys-after")?,
        ..KeyPolicy::default()
    })
}
