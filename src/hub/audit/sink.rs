//! A SIEM's copy of the record. The store is the queue: the sink keeps the number of the last record that was
//! delivered and goes on behind it, so a slow or dead receiver costs no memory and nothing is lost in silence.
//! What retention removed before it was delivered is told as a gap, and so is a long record that the receiver refuses alone as too
//! large. Delivery is at least once, in order. Behind the records come the anchors over them.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::Schedule;
use crate::clock;
use crate::hub::store::Store;
use crate::secret::Secret;
use way::Way;

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
    File(PathBuf),
    /// `POST` of `application/x-ndjson`; 2xx takes it over. One at most.
    Webhook {
        /// May hold a secret, behind its host.
        url: Secret<String>,
        /// Sent as a bearer token; read anew for each batch.
        token_file: Option<PathBuf>,
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
            Self::File(path) => format!("file {}", path.display()),
            Self::Webhook { url, .. } => format!("{WEBHOOK}{}", host(url.expose())),
        }
    }

    async fn deliver(&self, lines: String) -> Result<()> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || append(&path, &lines))
                    .await
                    .context("append to the audit file")?
            }
            Self::Webhook {
                url,
                token_file,
                ca,
            } => {
                let size = lines.len();
                let client = crate::client::http(ca.as_deref()).context("set up TLS")?;
                let mut request = client
                    .post(url.expose())
                    .timeout(TIMEOUT)
                    .header("content-type", "application/x-ndjson")
                    .body(lines);
                if let Some(path) = token_file {
                    let token = tokio::fs::read_to_string(path).await;
                    let token = token.with_context(|| format!("read {}", path.display()))?;
                    let token = Secret::new(token.trim().to_owned());
                    request = request.bearer_auth(token.expose());
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

fn append(path: &Path, lines: &str) -> Result<()> {
    let append = || {
        // Of a pipe or a device nothing is known but that it takes what is written.
        let plain = std::fs::metadata(path).map_or(true, |file| file.is_file());
        let mut file = std::fs::OpenOptions::new()
            .read(plain)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        if !plain {
            return file.write_all(lines.as_bytes());
        }
        whole(&mut file, |file| {
            // A hub or a machine that died while it wrote may have left half a line, which belongs to nothing.
            if in_a_line(file)? {
                file.write_all(b"\n")?;
            }
            file.write_all(lines.as_bytes())?;
            file.sync_data()
        })
    };
    append().with_context(|| format!("append to {}", path.display()))
}

/// What could not be written whole is taken back: the same lines come again.
fn whole(
    file: &mut File,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let before = file.metadata()?.len();
    write(file).inspect_err(|_| {
        if let Err(error) = file.set_len(before) {
            // A file that only grows, by an attribute of its own.
            tracing::warn!(%error, "half a line stays in the audit file");
        }
    })
}

/// Whether a file's last line has no end.
fn in_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// How many records wait, as long as somebody here delivers them. Whoever goes on with it then, at another replica, says how far that is:
/// this one shows none, however it ended.
struct Behind(Gauge);

impl Drop for Behind {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

/// Delivers until `stop`, and then no more than what it is about to; `head` is the number of the chain's last record, `behind` how
/// many of them the sink has yet to take.
pub async fn run(
    store: Store,
    sink: Sink,
    mut head: watch::Receiver<i64>,
    behind: Gauge,
    stop: CancellationToken,
) -> Result<()> {
    let name = sink.name();
    let mut way = Way::new(store.clone(), sink);
    let behind = Behind(behind);
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
        behind
            .0
            .set(head.borrow().saturating_sub(way.delivered()).max(0));
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
                tracing::warn!(
                    sink = name,
                    failures,
                    error = format!("{error:#}"),
                    "audit records wait for their sink"
                );
                failures += 1;
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
    use super::*;

    fn file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("linesman-{name}-{}", std::process::id()));
        drop(std::fs::remove_file(&path));
        path
    }

    /// A disk that is full in the middle of a line leaves all lines before it as they were, and none but whole ones.
    #[test]
    fn lines_that_do_not_fit_leave_nothing() {
        let path = file("full-sink");
        append(&path, "one\n").unwrap();
        let mut full = File::options().append(true).open(&path).unwrap();
        let refused = whole(&mut full, |file| {
            file.write_all(b"tw")?;
            Err(std::io::ErrorKind::StorageFull.into())
        });
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        append(&path, "two\nthree\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one\ntwo\nthree\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn half_a_line_of_before_stays_alone() {
        let path = file("half-sink");
        std::fs::write(&path, "one\ntw").unwrap();
        append(&path, "two\n").unwrap();
        append(&path, "three\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one\ntw\ntwo\nthree\n");
        std::fs::remove_file(path).unwrap();
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

    #[test]
    fn what_is_no_plain_file_takes_lines_too() {
        append(Path::new("/dev/null"), "one\n").unwrap();
    }
}
