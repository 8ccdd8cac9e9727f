//! The data directory: made on the first start, opened on every later one.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::kept::{Before, CannotStart};
use super::{first_admin, renew};
use crate::clock;
use crate::hub::githost::{HostKeys, embedded};
use crate::hub::gitline::GitTarget;
use crate::hub::login::Logins;
use crate::hub::lookups::Lookups;
use crate::hub::oidc::Provider;
use crate::hub::peers::pin::Credential;
use crate::hub::peers::{Peers, Timing};
use crate::hub::store::{Share, Store};
use crate::hub::tls::{self, Tls, TlsSource};
use crate::hub::trust::Said;
use crate::hub::{
    CATALOG, CatalogHost, Hub, HubConfig, HubKeys, Orders, Presence, api, audit, auth, git, notify,
    replica, safe_heals, trust, tunnels, whole,
};
use crate::keys::{self, KeyPair};
use crate::secret::Secret;
use crate::ssh::{GitUrl, HostPair};
use crate::wire::api::HubRef;

/// Another replica's turn at the data directory takes a second; and how often it is looked whether it is over.
const TURN: Duration = Duration::from_mins(1);
const TURN_LOOK: Duration = Duration::from_millis(20);
/// The hub's signing key, in the data directory.
pub(super) const KEY: &str = "hub.key";
pub const KEY_COMMENT: &str = "linesman hub";
/// Joins at once; more are told to come again.
const JOINS: usize = 50;

/// Opens everything in the data directory; what is not there yet is made.
pub async fn start(
    mut config: HubConfig,
    stop: CancellationToken,
) -> Result<(Arc<Hub>, audit::Chain)> {
    let now = clock::now();
    let data = config.data.clone();
    make(&data)?;
    has_git().await?;
    let share = match &config.peer {
        None => Share::Alone,
        Some(_) => Share::Several,
    };
    let store = as_told(Store::open(&data, &config.records, share).await?, &config);
    // What the first start makes, one of them makes.
    let turn = turn(&data).await?;
    config.tls = with_names(&config)?;
    let id = store.hub_id().await?;
    let before = Before::of(&store).await?;
    before.has_key(&data)?;
    let tls = served(&config, now)?;
    key_pair(&data.join(KEY), KEY_COMMENT)?;
    let keys = renew::keys(&data, now)?;
    let said = say(&config, &id, &tls, keys)?;
    let (catalog, git_url) = catalog_host(&config)?;
    let git_keys = HostKeys::open(&store, &git_url, host_pair(&data)?, now).await?;
    let others = others(&config);
    before.catalog(&store, &catalog.repo, others).await?;
    first_admin::ensure(&store, &data, now).await?;
    let logins = Logins::new(&seal_key(&data.join("seal.key"))?);
    drop(turn);
    let replica = own(&config, &store).await?;
    let tunnels = tunnels::Tunnels::default();
    let peers = peers(replica.as_ref(), &tunnels, config.drain)?;
    let writer = replica.as_ref().map(|own| own.record.id.clone());
    let said = watch::Sender::new(Arc::new(said));
    let (audit, chain) = audit::start(store.clone(), &id, said.subscribe(), writer).await?;
    let hub = Hub {
        id,
        replica,
        peers,
        started: now,
        incident: safe_heals::standing(&store).await?,
        lookups: Lookups::new(store.clone()),
        store,
        tunnels,
        audit,
        audit_readers: api::audit::Readers::default(),
        strangers: api::strangers::Strangers::default(),
        said,
        data_gone: watch::Sender::new(None),
        orders: Orders::default(),
        diagnoses: crate::hub::diagnoses::Diagnoses::default(),
        access_changed: tokio::sync::Notify::new(),
        catalog,
        git_keys,
        notices: notify::Ended::default(),
        tried: crate::hub::tried::Tried::default(),
        presence: Presence::default(),
        paces: crate::hub::pace::Paces::default(),
        tls,
        metrics: crate::telemetry::HubMetrics::begun(),
        oidc: config.oidc.clone().map(Provider::new),
        logins,
        requests: Arc::default(),
        joins: Arc::new(Semaphore::new(JOINS)),
        work: TaskTracker::new(),
        hearts: crate::lifetime::hearts::Hearts::default(),
        stop,
        config,
    };
    Ok((Arc::new(hub), chain))
}

/// What this one is among several, on record for the others.
async fn own(config: &HubConfig, store: &Store) -> Result<Option<replica::Own>> {
    let own = config.peer.as_ref().map(replica::Own::new).transpose()?;
    if let Some(own) = &own {
        replica::lease::begin(store, own).await?;
    }
    Ok(own)
}

/// What the configuration says of how records are kept and judged.
fn as_told(store: Store, config: &HubConfig) -> Store {
    let within = auth::vouched_within(config.oidc.as_ref());
    store
        .audit_survives(config.audit.durability)
        .vouched_within(within)
}

/// What the listener serves. Who meets a certificate of another name, or of another CA, refuses the hub; but a balancer before it
/// may show one of its own.
fn served(config: &HubConfig, now: OffsetDateTime) -> Result<Tls> {
    let tls = Tls::load(&config.data, config.tls.clone(), now)?;
    if let Some(doubt) = tls.doubt(&config.url, now) {
        tracing::warn!(url = config.url, "the certificate of --tls-cert: {doubt}");
    }
    Ok(tls)
}

fn others(config: &HubConfig) -> git::Others {
    match config.peer {
        None => git::Others::Nobody,
        Some(_) => git::Others::Replicas,
    }
}

/// What agents believe of this hub, and why.
pub(super) fn say(config: &HubConfig, id: &str, tls: &Tls, keys: HubKeys) -> Result<Said> {
    let now = clock::now();
    let hub = HubRef {
        id: id.to_owned(),
        urls: vec![config.url.clone()],
        ca: tls.ca(),
        keyset: keys.keyset(now.unix_timestamp()),
    };
    let (trust, chain) = trust::current(&config.data, &hub, &keys, now)?;
    Ok(Said { keys, trust, chain })
}

fn make(data: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .with_context(|| format!("make the data directory {}", data.display()))?;
    // One that was there before keeps its mode. A group may be a volume's, and is the operator's word.
    let open = |found: std::fs::Metadata| found.permissions().mode() & 0o007 != 0;
    if data.metadata().is_ok_and(open) {
        tracing::warn!(
            data = %data.display(),
            "others of this machine may enter the hub's data directory, where the catalog is for all to read: run 'chmod o= DIR'"
        );
    }
    Ok(())
}

/// Without it the hub would come up, and no cluster could read the catalog.
async fn has_git() -> Result<(), CannotStart> {
    embedded::has_git().await.map_err(|path| CannotStart {
        what: format!("there is no git in {path}, and the hub serves the catalog by it"),
        next: "install git on this machine".to_owned(),
    })
}

/// What reaches the other replicas.
/// None = it is alone.
fn peers(
    own: Option<&replica::Own>,
    tunnels: &tunnels::Tunnels,
    drain: Duration,
) -> Result<Option<Peers>> {
    let Some(own) = own else {
        return Ok(None);
    };
    let key = own.key.clone_key().into();
    let credential = Credential::new(own.cert.clone(), key).context("use the replica's key")?;
    let timing = Timing {
        drain,
        ..Timing::default()
    };
    Ok(Some(Peers::new(credential, tunnels.memory.clone(), timing)))
}

/// The data directory for whoever changes what several replicas share in it; freed when it is dropped.
pub async fn turn(data: &Path) -> Result<std::fs::File> {
    let path = data.join("hub.turn");
    let doing = || format!("take a turn at {}", path.display());
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(doing)?;
    let free = async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(TURN_LOOK).await,
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    };
    let taken = tokio::time::timeout(TURN, free).await;
    taken
        .with_context(|| format!("{}: another replica does not end its own", doing()))?
        .with_context(doing)?;
    Ok(file)
}

/// Our own certificate is good for the URL's host, the listening address and localhost, beside the names given.
fn with_names(config: &HubConfig) -> Result<TlsSource> {
    let TlsSource::Own { names } = &config.tls else {
        return Ok(config.tls.clone());
    };
    let host = tls::host(&config.url)
        .with_context(|| format!("the hub's URL {} names no host", config.url))?;
    // Replicas share a certificate, and each has an address of its own.
    let own = config.peer.is_none().then(|| config.listen.ip());
    let mut all = tls::names(&host, own.as_slice());
    all.extend(names.iter().cloned());
    all.sort();
    all.dedup();
    Ok(TlsSource::Own { names: all })
}

fn catalog_host(config: &HubConfig) -> Result<(CatalogHost, GitUrl)> {
    let url = format!("{}/{CATALOG}", config.git_url.trim_end_matches('/'));
    let parsed: GitUrl = url
        .parse()
        .with_context(|| format!("the URL of the built-in Git server, {url}"))?;
    let catalog = CatalogHost {
        repo: config.data.join(CATALOG),
        url,
        branch: git::BRANCH.to_owned(),
        dial: GitTarget::built_in(config.git_listen),
    };
    Ok((catalog, parsed))
}

/// The key that the built-in Git server shows, made where there is none. Its file had another name while all keys were
/// Ed25519.
fn host_pair(data: &Path) -> Result<HostPair> {
    for (old, now) in [
        ("git_host_ed25519.next", next_host_key(data)),
        ("git_host_ed25519", host_key(data)),
    ] {
        let old = data.join(old);
        if old.exists() && !now.exists() {
            std::fs::rename(&old, &now)
                .with_context(|| format!("rename {} to {}", old.display(), now.display()))?;
        }
    }
    let path = &host_key(data);
    if !path.exists() {
        key_pair(path, "linesman catalog")?;
    }
    let doing = || format!("read the host key {}", path.display());
    let text = std::fs::read_to_string(path).with_context(doing)?;
    HostPair::from_openssh(&text).with_context(doing)
}

/// The key in a file.
pub(super) fn read_key(path: &Path) -> Result<KeyPair> {
    let doing = || format!("read the key {}", path.display());
    let text = std::fs::read_to_string(path).with_context(doing)?;
    KeyPair::from_openssh(&text).with_context(doing)
}

/// The key in a file, made where there is none.
fn key_pair(path: &Path, comment: &str) -> Result<KeyPair> {
    if path.exists() {
        return read_key(path);
    }
    let pair = KeyPair::from_seed(&clock::random());
    let text = pair.openssh(comment).context("encode a key")?;
    keep_secret(path, text.expose())?;
    Ok(pair)
}

/// The key that provider's refresh tokens are sealed with, made where there is none.
fn seal_key(path: &Path) -> Result<Secret<[u8; 32]>> {
    if !path.exists() {
        keep_secret(path, &keys::encode(&clock::random::<32>()))?;
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("read the sealing key {}", path.display()))?;
    let key = keys::decode(text.trim()).and_then(|bytes| bytes.try_into().ok());
    let key = key.with_context(|| {
        format!(
            "{} holds no key; restore it, or delete it: everyone then has to log in again",
            path.display()
        )
    })?;
    Ok(Secret::new(key))
}

/// The key that the built-in Git server shows.
pub fn host_key(data: &Path) -> PathBuf {
    data.join("git_host_key")
}

/// The key that it will show next, while one is told.
pub fn next_host_key(data: &Path) -> PathBuf {
    data.join("git_host_key.next")
}

/// A file for its owner only, whole or not at all.
pub fn keep_secret(path: &Path, text: &str) -> Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    whole::write(path, &[text, end], 0o600)
}
