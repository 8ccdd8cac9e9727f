//! Another signing key, or another CA of its own, for a hub whose data directory this is. A hub that runs tells of it, and
//! takes it up at its time; agents follow by themselves.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use time::{Duration, OffsetDateTime};

use super::keep_secret;
use super::open::{KEY, KEY_COMMENT, turn};
use crate::clock;
use crate::hub::tls;
use crate::hub::trust::{self, Times};
use crate::keys::KeyPair;

/// What was before counts for so long after what is new is used.
pub const OVERLAP: Duration = Duration::minutes(10);

/// Told at once, and used after `lead`.
pub fn times(now: OffsetDateTime, lead: Duration) -> Times {
    let used = now + lead;
    Times {
        now,
        used,
        ends: used + OVERLAP,
    }
}

/// Fingerprints, before and after.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Renewed {
    pub before: String,
    pub after: String,
}

/// Replaces the hub's signing key. The former private half is gone when this returns, but for the hubs that run: until its
/// end they sign with it.
pub async fn key(data: &Path, times: Times) -> Result<Renewed> {
    let _turn = opened(data).await?;
    let path = data.join(KEY);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("read the hub's key {}", path.display()))?;
    let active = KeyPair::from_openssh(&text)
        .with_context(|| format!("read the hub's key {}", path.display()))?;
    let next = KeyPair::from_seed(&clock::random());
    let text = next.openssh(KEY_COMMENT).context("encode a key")?;
    // What vouches for it first: a key that nobody vouches for would lose every cluster.
    trust::succeed(data, &active, &next, times)?;
    keep_secret(&path, text.expose())?;
    Ok(Renewed {
        before: active.public().fingerprint(),
        after: next.public().fingerprint(),
    })
}

/// Makes another CA of the hub's own.
pub async fn ca(data: &Path, times: Times) -> Result<Renewed> {
    let _turn = opened(data).await?;
    let (before, after) = tls::succeed(data, times)?;
    Ok(Renewed { before, after })
}

/// Nothing is made in a directory that is no hub's.
async fn opened(data: &Path) -> Result<std::fs::File> {
    if !data.join(KEY).exists() {
        bail!(
            "{} is not a hub's data directory: it has no {KEY}",
            data.display()
        );
    }
    turn(data).await
}
