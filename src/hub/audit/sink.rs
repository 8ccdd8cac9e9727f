//! A SIEM's copy of the record. The store is the queue: the sink keeps the number of the last record that was
//! delivered and goes on behind it, so a slow or dead receiver costs no memory and nothing is lost in silence.
//! What retention removed before it was delivered is told as a gap. Delivery is at least once, in order. Behind the records
//! come the anchors over them.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::chain;
use crate::backoff::Schedule;
use crate::clock;
use crate::hub::store::{Anchor, AuditRow, Store};
use crate::keys;
use crate::secret::Secret;

const BATCH: u32 = 500;
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
    /// `POST` of `application/x-ndjson`; 2xx takes it over.
    Webhook {
        url: String,
        /// Sent as a bearer token; read anew for each batch.
        token_file: Option<PathBuf>,
        /// PEM: these roots only.
        ca: Option<String>,
    },
}

impl Sink {
    /// The name that its position is kept under.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => format!("file {}", path.display()),
            Self::Webhook { url, .. } => format!("webhook {url}"),
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
                let client = crate::client::http(ca.as_deref()).context("set up TLS")?;
                let mut request = client
                    .post(url)
                    .timeout(TIMEOUT)
                    .header("content-type", "application/x-ndjson")
                    .body(lines);
                if let Some(path) = token_file {
                    let token = tokio::fs::read_to_string(path).await;
                    let token = token.with_context(|| format!("read {}", path.display()))?;
                    let token = Secret::new(token.trim().to_owned());
                    request = request.bearer_auth(token.expose());
                }
                let answer = request.send().await.context("send to the audit webhook")?;
                let status = answer.status();
                ensure!(
                    status.is_success(),
                    "the audit webhook answered {status} instead of 2xx"
                );
                Ok(())
            }
        }
    }
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

/// Delivers until `stop`; `head` is the number of the chain's last record.
pub async fn run(
    store: Store,
    sink: Sink,
    mut head: watch::Receiver<i64>,
    stop: CancellationToken,
) -> Result<()> {
    let name = sink.name();
    let mut failures = 0;
    loop {
        head.borrow_and_update();
        let wait = match next(&store, &sink, &name).await {
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
            () = stop.cancelled() => return Ok(()),
            _ = head.changed(), if failures == 0 => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Delivers the next records, if there are any.
async fn next(store: &Store, sink: &Sink, name: &str) -> Result<bool> {
    let position = store.audit_position(name).await?;
    let rows = store.audit(position.unwrap_or(0), None, BATCH).await?;
    let Some(last) = rows.last().map(|row| row.seq) else {
        return anchors(store, sink, (name, position.unwrap_or(0))).await;
    };
    sink.deliver(lines(position, &rows)).await?;
    store.set_audit_position(name, last).await?;
    Ok(true)
}

/// Delivers the next anchors of records that the sink has, if there are any. What the hub signed is then out of reach of
/// whoever can write its database, and so is the tail of the record up to there.
async fn anchors(store: &Store, sink: &Sink, (name, delivered): (&str, i64)) -> Result<bool> {
    let name = format!("{name} (anchors)");
    let position = store.audit_position(&name).await?.unwrap_or(0);
    let anchors = store.audit_anchors_between(position, delivered, BATCH);
    let anchors = anchors.await?;
    let Some(last) = anchors.last().map(|anchor| anchor.seq) else {
        return Ok(false);
    };
    sink.deliver(anchor_lines(&anchors)).await?;
    store.set_audit_position(&name, last).await?;
    Ok(true)
}

/// `{"anchor": {"seq", "hash", "at", "sig", "start"}}`
fn anchor_lines(anchors: &[Anchor]) -> String {
    let mut text = String::new();
    for anchor in anchors {
        let line = json!({"anchor": {
            "seq": anchor.seq,
            "hash": keys::hex(&anchor.hash),
            "at": anchor.at,
            "sig": keys::encode(&anchor.sig),
            "start": anchor.start,
        }});
        text += &line.to_string();
        text.push('\n');
    }
    text
}

/// What is sent: a gap where records between the last one delivered and the first of these are gone.
fn lines(position: Option<i64>, rows: &[AuditRow]) -> String {
    let mut text = String::new();
    if let (Some(before), Some(first)) = (position, rows.first())
        && first.seq > before + 1
    {
        let gap = json!({"gap": {
            "from": before + 1,
            "to": first.seq - 1,
            "reason": "removed by the hub's retention before the sink took them",
        }});
        text += &gap.to_string();
        text.push('\n');
    }
    for row in rows {
        text += &serde_json::to_string(&chain::view(row)).expect("a record has string keys");
        text.push('\n');
    }
    text
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

    #[test]
    fn what_is_no_plain_file_takes_lines_too() {
        append(Path::new("/dev/null"), "one\n").unwrap();
    }
}
