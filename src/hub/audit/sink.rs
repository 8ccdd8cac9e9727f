//! A SIEM's copy of the record. The store is the queue: the sink keeps the number of the last record that was
//! delivered and goes on behind it, so a slow or dead receiver costs no memory and nothing is lost in silence.
//! What retention removed before it was delivered is told as a gap, and so is a long record that the receiver refuses alone as too
//! large. Delivery is at least once, in order. Behind the records come the anchors over them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, StatusCode};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::Schedule;
use crate::clock;
use crate::hub::chain_of_any;
use crate::hub::store::Store;
use crate::hub::tried::Tried;
use crate::secret::Secret;
pub use file::AuditFile;
use way::Way;

mod file;
pub mod headers;
mod room;
mod way;

/// How names of webhooks begin, and how those of positions among the anchors end.
const WEBHOOK: &str = "webhook ";
const ANCHORS: &str = " (anchors)";
const TIMEOUT: Duration = Duration::from_secs(10);
/// The net below the wake-ups.
const LOOK: Duration = Duration::from_secs(30);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Where records go, one JSON object a line.
#[derive(Debug, Clone)]
pub enum Sink {
    /// Appended to; opened anew for each batch, so that it can be rotated.
    File(AuditFile),
    /// `POST` of `application/x-ndjson`; 2xx takes it over. One at most.
    Webhook {
        /// May hold a secret, behind its host.
        url: Secret<String>,
        /// Sent as a bearer token; read anew for each batch.
        token_file: Option<PathBuf>,
        /// Headers that are sent as well, one `Name: value` a line; read anew for each batch.
        header_file: Option<PathBuf>,
        /// PEM: these roots only.
        ca: Option<String>,
    },
}

/// There is too much of it, whatever it is.
#[derive(Debug, thiserror::Error)]
#[error("the audit webhook answered 413 (Content Too Large) to {0} bytes")]
struct TooLarge(usize);

impl Sink {
    /// Its word in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Webhook { .. } => "webhook",
        }
    }

    /// What it is called where people see it, and what its position is kept under. Of a URL that is the host: what else is in it may be
    /// a secret, and with another one nothing is sent again.
    pub fn name(&self) -> String {
        match self {
            Self::File(file) => format!("file {}", file.path().display()),
            Self::Webhook { url, .. } => format!("{WEBHOOK}{}", host(url.expose())),
        }
    }

    async fn deliver(&self, lines: String, within: Duration) -> Result<()> {
        match self {
            Self::File(file) => file.append(lines, within).await,
            Self::Webhook {
                url,
                token_file,
                header_file,
                ca,
            } => {
                let size = lines.len();
                let client = crate::client::http(ca.as_deref()).context("set up TLS")?;
                let mut request = client
                    .post(url.expose())
                    .timeout(within)
                    .header("content-type", "application/x-ndjson")
                    .body(lines);
                if let Some(path) = token_file {
                    let token = tokio::fs::read_to_string(path).await;
                    let token = token.with_context(|| format!("read {}", path.display()))?;
                    let token = Secret::new(token.trim().to_owned());
                    request = request.bearer_auth(token.expose());
                }
                if let Some(path) = header_file {
                    request = request.headers(headers_in(path).await?);
                }
                let answer = request.send().await;
                let answer = answer.map_err(|e| {
                    // Its text would show the URL.
                    let error = anyhow::Error::new(e.without_url());
                    error.context("send to the audit webhook")
                })?;
                let status = answer.status();
                if status == StatusCode::PAYLOAD_TOO_LARGE {
                    return Err(TooLarge(size).into());
                }
                ensure!(
                    status.is_success(),
                    "the audit webhook answered {status} instead of 2xx"
                );
                Ok(())
            }
        }
    }
}

async fn headers_in(path: &Path) -> Result<HeaderMap> {
    let text = tokio::fs::read_to_string(path).await;
    let text = Secret::new(text.with_context(|| format!("read {}", path.display()))?);
    let read = headers::parse(text.expose());
    read.with_context(|| format!("read the headers in {}", path.display()))
}

/// Host and port of a URL.
fn host(url: &str) -> String {
    let url = url.parse::<http::Uri>().ok();
    let host = url.as_ref().and_then(|url| {
        let host = url.host()?.to_ascii_lowercase();
        Some(match url.port_u16() {
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    });
    host.unwrap_or_else(|| "without a host".to_owned())
}

/// What a position is kept under now that hubs of before kept under the whole URL.
fn renamed(name: &str) -> Option<String> {
    let webhook = name.strip_prefix(WEBHOOK)?;
    let (url, end) = match webhook.strip_suffix(ANCHORS) {
        Some(url) => (url, ANCHORS),
        None => (webhook, ""),
    };
    let whole = url.contains("://");
    whole.then(|| format!("{WEBHOOK}{}{end}", host(url)))
}

async fn rename(store: &Store) -> Result<()> {
    for name in store.audit_sinks().await? {
        if let Some(to) = renamed(&name) {
            store.rename_audit_sink(&name, &to).await?;
        }
    }
    Ok(())
}

/// How many records wait, as long as somebody here delivers them. Whoever goes on with it then, at another replica, says how far that is:
/// this one shows none, however it ended.
struct Behind {
    shown: Gauge,
    /// The last record that this process stored.
    head: watch::Receiver<i64>,
}

impl Behind {
    /// `last` is the last record that is known of, be it another replica's.
    fn show(&self, delivered: i64, last: i64) {
        let last = last.max(*self.head.borrow());
        self.shown.set(last.saturating_sub(delivered).max(0));
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.shown.set(0);
    }
}

/// What others see of a sink.
pub struct Seen {
    /// How many of the chain's records it has yet to take.
    pub behind: Gauge,
    pub tried: Tried,
}

/// Delivers until `stop`, and then no more than what it is about to; `head` is the number of the last record that this process stored.
pub async fn run(
    store: Store,
    sink: Sink,
    mut head: watch::Receiver<i64>,
    seen: Seen,
    stop: CancellationToken,
) -> Result<()> {
    let name = sink.name();
    let behind = Behind {
        shown: seen.behind,
        head: head.clone(),
    };
    let mut way = Way::new(store.clone(), sink, behind);
    let (mut failures, mut named) = (0, false);
    while !stop.is_cancelled() {
        head.borrow_and_update();
        let went = if named {
            way.next(&name).await
        } else {
            let done = rename(&store).await;
            named = done.is_ok();
            done.map(|()| true)
        };
        way.show();
        let ended = went.as_ref().map(|_| ()).map_err(chain_of_any);
        seen.tried.went(&name, clock::now(), ended);
        let wait = match went {
            Ok(true) => {
                failures = 0;
                continue;
            }
            Ok(false) => {
                failures = 0;
                LOOK
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    sink = name,
                    failures,
                    error = chain_of_any(&error),
                    "audit records wait for their sink"
                );
                RETRY.full_jitter(failures - 1, clock::unit())
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            _ = head.changed(), if failures == 0 => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::hub::audit::chain::{genesis, link};
    use crate::hub::store::AuditRow;
    use crate::hub::store::sqlite::Sqlite;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A record of three, and a pipe that nobody reads, in a directory of their own.
    async fn unread() -> (PathBuf, PathBuf, Store) {
        let data = std::env::temp_dir().join(format!("linesman-behind-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
        let mut rows = vec![AuditRow::event(9); 3];
        let mut head = genesis("hub-1");
        for row in &mut rows {
            head = link(head, row);
        }
        store.append_audit(&rows).await.unwrap();
        let pipe = data.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        (data, pipe, store)
    }

    /// While a file hangs, and when it was given up, it shows how many records wait; each goes there once when it is read.
    #[tokio::test]
    async fn records_that_wait_for_a_file_that_hangs_are_counted() {
        let (data, pipe, store) = unread().await;
        let sink = Sink::File(AuditFile::new(pipe.clone()));
        let name = sink.name();
        // The first of them is this replica's, the others are not.
        let (head, seen) = watch::channel(1);
        let shown = Gauge::default();
        let behind = Behind {
            shown: shown.clone(),
            head: seen,
        };
        let mut way = Way::new(store, sink, behind);
        let told = async {
            while shown.get() != 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = way.next(&name) => panic!("{ended:?}"),
            told = timeout(PATIENCE, told) => told.expect("it is shown while it hangs"),
        }
        // One more comes, and waits behind those that hang.
        head.send_replace(4);
        way.within = Duration::from_millis(50);
        let why = way.next(&name).await.unwrap_err().to_string();
        let hangs = format!("append to {}: it hangs, for 50ms", pipe.display());
        assert!(why.starts_with(&hangs), "{why}");
        assert_eq!(shown.get(), 4);

        way.within = PATIENCE;
        let both_ends = std::fs::File::options().read(true).write(true).open(&pipe);
        let reader = std::io::BufReader::new(both_ends.unwrap());
        assert!(way.next(&name).await.unwrap());
        way.show();
        assert_eq!((way.next(&name).await.unwrap(), shown.get()), (false, 1));
        let lines = std::io::BufRead::lines(reader).take(3).map(Result::unwrap);
        let seq = |line: String| {
            let record: serde_json::Value = serde_json::from_str(&line).unwrap();
            record["seq"].as_i64()
        };
        let seqs: Vec<Option<i64>> = lines.map(seq).collect();
        assert_eq!(seqs, [Some(1), Some(2), Some(3)]);
        std::fs::remove_dir_all(data).unwrap();
    }

    /// A secret may be in each part of a URL but its host.
    #[test]
    fn of_a_webhook_nothing_is_shown_but_its_host() {
        for (url, name) in [
            ("https://siem.example.org/in", "webhook siem.example.org"),
            (
                "https://u:canary@SIEM.example.org:8443/canary?k=canary",
                "webhook siem.example.org:8443",
            ),
            ("http://[::1]:1/canary", "webhook [::1]:1"),
            ("canary", "webhook canary"),
            ("/canary", "webhook without a host"),
        ] {
            let sink = Sink::Webhook {
                url: url.to_owned().into(),
                token_file: None,
                header_file: None,
                ca: None,
            };
            assert_eq!(sink.name(), name);
            assert!(!format!("{sink:?}").contains("canary"));
            // What it was kept under is brought to that, once.
            let before = url.contains("://").then(|| name.to_owned());
            assert_eq!(renamed(&format!("webhook {url}")), before, "{url}");
            let before = before.map(|name| format!("{name} (anchors)"));
            let anchors = format!("webhook {url} (anchors)");
            assert_eq!(renamed(&anchors), before, "{url}");
            assert_eq!(renamed(name), None);
        }
        assert_eq!(renamed("file /var/log/https://x"), None);
    }
}
