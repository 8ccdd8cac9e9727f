//! Another signing key, or another CA of its own, for a hub whose data directory this is. A hub that runs tells of it, and
//! takes it up at its time; agents follow by themselves.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use time::{Duration, OffsetDateTime};

use super::open::{KEY, read_key, turn};
use super::{KEY_COMMENT, keep_secret};
use crate::clock;
use crate::hub::trust::{self, Times};
use crate::hub::{HubKeys, tls};
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

/// Makes another signing key. The one before signs until its time, in replicas that are started meanwhile too, and is gone then.
pub async fn key(data: &Path, times: Times) -> Result<Renewed> {
    let _turn = opened(data).await?;
    let signs = taken_up(data, times.now)?;
    let next = KeyPair::from_seed(&clock::random());
    let told = trust::succeed(data, &signs, &next, times)?;
    taken_up(data, times.now)?;
    Ok(Renewed {
        before: told.before.public().fingerprint(),
        after: next.public().fingerprint(),
    })
}

/// The hub's keys by now. Whoever asks has a turn at the data directory.
pub(super) fn keys(data: &Path, now: OffsetDateTime) -> Result<HubKeys> {
    trust::keys(data, &taken_up(data, now)?)
}

/// The key that signs by now: one whose time has come takes the place of the one before. Cut off at any point, whoever is next
/// goes on.
fn taken_up(data: &Path, now: OffsetDateTime) -> Result<KeyPair> {
    let path = data.join(KEY);
    let signs = read_key(&path)?;
    let Some(next) = trust::due(data, &signs, now)? else {
        return Ok(signs);
    };
    let text = next.openssh(KEY_COMMENT).context("encode a key")?;
    keep_secret(&path, text.expose())?;
    trust::took_up(data)?;
    Ok(next)
}

/// Makes another CA of the hub's own.
pub async fn ca(data: &Path, times: Times) -> Result<Renewed> {
    let _turn = opened(data).await?;
    let (before, after) = tls::succeed(data, times)?;
    Ok(Renewed { before, after })
}

/// Nothing is made in a directory that is no hub's, nor by somebody whose files the hub could not read.
async fn opened(data: &Path) -> Result<std::fs::File> {
    let key = data.join(KEY);
    if !key.exists() {
        bail!(
            "{} is not a hub's data directory: it has no {KEY}",
            data.display()
        );
    }
    let there = std::fs::metadata(&key).with_context(|| format!("look at {}", key.display()))?;
    let own = rustix::process::geteuid().as_raw();
    if let Some(why) = foreign(there.uid(), own) {
        bail!("{}: {why}", data.display());
    }
    turn(data).await
}

/// What is made anew is its maker's alone: another user than the hub's, root too, would leave a hub that cannot start.
fn foreign(owner: u32, own: u32) -> Option<String> {
    (owner != own).then(|| {
        format!(
            "its {KEY} is of the user {owner}, and the hub could read no file of the user {own}; \
             run it as that one: sudo -u '#{owner}' linesman hub rotate …"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_whose_key_it_is_makes_another() {
        assert_eq!((foreign(999, 999), foreign(0, 0)), (None, None));
        let told = |owner, own| foreign(owner, own).unwrap_or_default();
        assert!(told(999, 0).ends_with("sudo -u '#999' linesman hub rotate …"));
        assert!(told(0, 999).ends_with("sudo -u '#0' linesman hub rotate …"));
    }
}
