//! The audit file. What opens or writes it may hang: a pipe that nobody reads, a mount that does not answer. So that has a thread of
//! its own and a deadline, and none is begun beside one that hangs.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The file, for all in this process who append to it, one after the other: a replica that led before may lead again.
#[derive(Debug, Clone)]
pub struct AuditFile {
    path: PathBuf,
    appending: Arc<Mutex<Appending>>,
}

impl AuditFile {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            appending: Arc::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "two that append at once would write their lines in any order"
    )]
    pub(super) async fn append(&self, lines: String, within: Duration) -> Result<()> {
        let mut appending = self.appending.lock().await;
        appending.append(&self.path, lines, within).await
    }
}

/// Where the last append is whose end is not known yet.
#[derive(Debug, Default)]
struct Appending(Option<Begun>);

#[derive(Debug)]
struct Begun {
    /// All that is in the file when it has ended well.
    lines: String,
    task: JoinHandle<Result<()>>,
}

impl Appending {
    /// Appends these lines, behind what was begun before: two at once would write them in any order. What that took, late, is not
    /// appended again.
    async fn append(&mut self, path: &Path, lines: String, within: Duration) -> Result<()> {
        let before = self.ended(path, within).await?;
        let before = before.as_deref();
        let left = before.and_then(|before| lines.strip_prefix(before));
        let left = left.unwrap_or(&lines).to_owned();
        if left.is_empty() {
            return Ok(());
        }
        let file = path.to_owned();
        let task = tokio::task::spawn_blocking(move || append(&file, &left));
        self.0 = Some(Begun { lines, task });
        self.ended(path, within).await.map(drop)
    }

    /// Waits for the end of what was begun; gives what it appended.
    async fn ended(&mut self, path: &Path, within: Duration) -> Result<Option<String>> {
        let Some(begun) = &mut self.0 else {
            return Ok(None);
        };
        let Ok(ended) = timeout(within, &mut begun.task).await else {
            bail!(
                "append to {}: it hangs, for {within:?} at least; if it is a pipe, start what reads it, otherwise see that its mount answers",
                path.display()
            );
        };
        let begun = self.0.take();
        ended.context("append to the audit file")??;
        Ok(begun.map(|begun| begun.lines))
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Command;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

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

    fn pipe(name: &str) -> PathBuf {
        let path = file(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    /// Nobody reads it for a while: that is told each time, only one append is begun, also by who comes after one that was ended
    /// meanwhile, and the reader gets each line once.
    #[tokio::test]
    async fn a_pipe_that_nobody_reads_is_left_at_its_deadline() {
        let path = pipe("unread-pipe");
        let file = AuditFile::new(path.clone());
        let ended = file.append("one\n".to_owned(), PATIENCE);
        assert!(timeout(Duration::from_millis(50), ended).await.is_err());
        for lines in ["one\n", "one\ntwo\n"] {
            let soon = Duration::from_millis(50);
            let appended = file.clone().append(lines.to_owned(), soon).await;
            let why = appended.unwrap_err().to_string();
            let told = format!("append to {}: it hangs, for 50ms", path.display());
            assert!(why.starts_with(&told), "{why}");
        }
        // With both ends in one hand, opening it waits for nobody.
        let reader = File::options().read(true).write(true).open(&path);
        let mut lines = BufReader::new(reader.unwrap()).lines();
        for text in ["one\ntwo\n", "three\n"] {
            file.append(text.to_owned(), PATIENCE).await.unwrap();
        }
        let read: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
        assert_eq!(read, ["one", "two", "three"]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_plain_file_takes_lines_too() {
        append(Path::new("/dev/null"), "one\n").unwrap();
    }
}
