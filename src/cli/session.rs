//! The sessions that `login` keeps: `$XDG_STATE_HOME/linesman/sessions.json` (`~/.local/state` where that is not set), 0600,
//! replaced whole under a file lock, so that parallel kubectl processes never read half of it.

mod alone;
pub(super) mod renew;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::exit::{Code, Failure};
use super::progress;
use crate::secret::Secret;
use alone::{Doing, alone};

/// What a login left: enough to speak to the hub again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    #[serde(serialize_with = "exposed", deserialize_with = "hidden")]
    pub token: Secret<String>,
    /// Good for the next token, once; a login with an identity provider has one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "exposed",
        deserialize_with = "hidden_if_any"
    )]
    pub refresh: Option<Secret<String>>,
    /// PEM; absent = the system's roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    pub user: String,
    /// Of the token, RFC 3339; absent = no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it cannot be renewed any more, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
}

/// The file, which only the user reads, is where a secret has to be seen.
fn exposed<'a, S: Serializer>(
    secret: impl Into<Option<&'a Secret<String>>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let secret: Option<&Secret<String>> = secret.into();
    secret.map(Secret::expose).serialize(to)
}

fn hidden<'de, D: Deserializer<'de>>(from: D) -> Result<Secret<String>, D::Error> {
    String::deserialize(from).map(Secret::new)
}

fn hidden_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret<String>>, D::Error> {
    Ok(Option::deserialize(from)?.map(Secret::<String>::new))
}

/// All sessions by the hub's address, and the hub that verbs mean when none is named.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sessions {
    #[serde(default)]
    pub current: Option<String>,
    #[serde(default)]
    pub hubs: BTreeMap<String, Session>,
}

/// Our directory below `$XDG_STATE_HOME`, or `~/.local/state`.
pub(super) fn directory() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::new(
            Code::Failed,
            "sessions have no place: neither XDG_STATE_HOME nor HOME names a directory",
            "set one of them, or use no session: LINESMAN_HUB and LINESMAN_TOKEN_FILE",
        )
    })?;
    Ok(state.join("linesman"))
}

/// Makes our directory, for the user alone.
pub(super) fn make_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("make {}", directory.display()))
}

/// No file is no session. One that holds something else is a [`Failure`].
pub(super) fn load(directory: &Path) -> Result<Sessions> {
    let path = directory.join("sessions.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Sessions::default()),
        Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
    };
    serde_json::from_slice(&text).map_err(|error| {
        let what = format!("{} does not hold sessions: {error}", path.display());
        let next = "forget all that it held: linesman logout --all; then log in again";
        Failure::new(Code::Failed, what, next).into()
    })
}

/// Changes the sessions while no other process does.
pub(super) async fn change(directory: &Path, change: impl FnOnce(&mut Sessions)) -> Result<()> {
    let _alone = changing(directory).await?;
    let mut sessions = load(directory)?;
    change(&mut sessions);
    keep(directory, &sessions)
}

/// Forgets all sessions while no other process changes them, and gives them; none where the file does not hold any that can be read.
pub(super) async fn forget(directory: &Path) -> Result<Option<Sessions>> {
    let _alone = changing(directory).await?;
    let sessions = match load(directory) {
        Ok(sessions) => Some(sessions),
        Err(error) if error.is::<Failure>() => None,
        Err(error) => return Err(error),
    };
    keep(directory, &Sessions::default())?;
    Ok(sessions)
}

/// A lock on the sessions, until it is dropped.
async fn changing(directory: &Path) -> Result<File> {
    const DOING: Doing = Doing {
        now: "changes the sessions",
        long: "been changing the sessions",
    };
    make_directory(directory)?;
    alone(&directory.join("sessions.lock"), DOING, progress::waits).await
}

fn keep(directory: &Path, sessions: &Sessions) -> Result<()> {
    let text = serde_json::to_vec_pretty(sessions).context("encode the sessions")?;
    replace(&directory.join("sessions.json"), &text)
}

/// Writes a file that only the user reads, whole or not at all.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    Replacement::open(path)?.write(content)
}

/// A file that will be there whole: it is known that it can be written before there is anything to write.
#[derive(Debug)]
pub(super) struct Replacement {
    file: File,
    /// Gone by the end, whatever the end is; none where it is no file that is written.
    beside: Option<PathBuf>,
    path: PathBuf,
}

impl Replacement {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let doing = || format!("write {}", path.display());
        if is_device(path) {
            let file = OpenOptions::new().append(true).open(path);
            return Ok(Self {
                file: file.with_context(doing)?,
                beside: None,
                path: path.to_owned(),
            });
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(name);
        if path.is_dir() {
            return Err(
                anyhow::Error::from(std::io::Error::from(ErrorKind::IsADirectory)).context(doing()),
            );
        }
        // What a process of the same number left is not written to: it may be another's, or more may read it.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(doing);
            }
            Ok(()) | Err(_) => {}
        }
        let file = private().create_new(true).open(&beside);
        Ok(Self {
            file: file.with_context(doing)?,
            beside: Some(beside),
            path: path.to_owned(),
        })
    }

    pub(super) fn write(mut self, content: &[u8]) -> Result<()> {
        self.add(content)?;
        self.done()
    }

    /// A part of it; what was there before stays until [`Replacement::done`].
    pub(super) fn add(&mut self, content: &[u8]) -> Result<()> {
        self.file
            .write_all(content)
            .with_context(|| format!("write {}", self.path.display()))
    }

    pub(super) fn done(self) -> Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        let put = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(beside, &self.path));
        put.with_context(|| format!("write {}", self.path.display()))
    }
}

/// `/dev/null`, `/dev/stdout` and the shell's `>(…)` are written to as they are. What anyone can put elsewhere, such as a pipe,
/// is not: it may be another's.
fn is_device(path: &Path) -> bool {
    let handed = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc/self/fd"];
    let is = |found: fs::Metadata| {
        found.file_type().is_char_device() || handed.iter().any(|place| path.starts_with(place))
    };
    fs::metadata(path).is_ok_and(is)
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Renamed by then where it was written.
        if let Some(beside) = &self.beside {
            let _gone = fs::remove_file(beside);
        }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!(
            "linesman-{name}-{}",
            crate::keys::hex(&crate::clock::random::<8>())
        ))
    }

    #[tokio::test]
    async fn sessions_are_kept_for_their_user_alone() {
        let directory = scratch("sessions");
        assert_eq!(load(&directory).unwrap(), Sessions::default());
        let session = Session {
            token: "lmt1.a.b".to_owned().into(),
            refresh: Some("lmr1.c.d".to_owned().into()),
            ca: None,
            user: "admin".to_owned(),
            expires_at: None,
            ends_at: None,
        };
        change(&directory, |s| {
            s.hubs.insert("https://hub".to_owned(), session.clone());
            s.current = Some("https://hub".to_owned());
        })
        .await
        .unwrap();
        assert_eq!(load(&directory).unwrap().hubs["https://hub"], session);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&directory), mode(&directory.join("sessions.json"))),
            (0o700, 0o600)
        );
        let shown = format!("{session:?}");
        let tokens = ["lmt1", "lmr1"];
        assert_eq!(tokens.map(|token| shown.contains(token)), [false; 2]);
        let kept = fs::read_to_string(directory.join("sessions.json")).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
        let kept = &kept["hubs"]["https://hub"];
        let expected =
            serde_json::json!({ "token": "lmt1.a.b", "refresh": "lmr1.c.d", "user": "admin" });
        assert_eq!(*kept, expected);
        fs::remove_dir_all(directory).unwrap();
    }

    /// A linesman that was stopped, or a home whose file system does not answer: kubectl's credential helper ends, and says what to look at.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_another_process() {
        let directory = scratch("held");
        make_directory(&directory).unwrap();
        let path = directory.join("sessions.lock");
        let other = private().open(&path).unwrap();
        other.lock().unwrap();
        let changed = change(&directory, |_| {}).await.unwrap_err();
        let forgotten = forget(&directory).await.unwrap_err();
        let expected = Failure::new(
            Code::Failed,
            "another linesman has been changing the sessions for a minute",
            format!("see what holds it: fuser -v {}", path.display()),
        );
        for error in [changed, forgotten] {
            assert_eq!(error.downcast_ref(), Some(&expected));
        }
        other.unlock().unwrap();
        change(&directory, |_| {}).await.unwrap();
        fs::remove_dir_all(directory).unwrap();
    }

    /// What a process of the same number left, or somebody put there, is not what is written to.
    #[test]
    fn a_secret_goes_into_no_file_that_was_there() {
        let directory = scratch("left");
        fs::create_dir_all(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let beside = |name: &str| directory.join(format!("{name}.{}", std::process::id()));
        fs::write(beside("one"), "left").unwrap();
        fs::set_permissions(beside("one"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(directory.join("others"), "theirs").unwrap();
        std::os::unix::fs::symlink(directory.join("others"), beside("two")).unwrap();
        for name in ["one", "two"] {
            let path = directory.join(name);
            replace(&path, b"secret").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"secret");
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(mode(&path), 0o600);
            assert!(!beside(name).exists());
        }
        assert_eq!(fs::read(directory.join("others")).unwrap(), b"theirs");
        fs::remove_dir_all(directory).unwrap();
    }

    /// `--file >(kubectl apply -f -)`, `--file /dev/null`: what is no file is written to, not replaced by one.
    #[test]
    fn what_the_shell_hands_over_is_written_to_as_it_is() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;

        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        replace(Path::new(&path), b"secret").unwrap();
        drop(writer);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, "secret");
        let devices = ["/dev/null", "/dev", "/dev/nothing", "/etc/passwd"];
        assert_eq!(
            devices.map(|path| is_device(Path::new(path))),
            [true, false, false, false]
        );
    }

    /// A part that was written is nowhere to be seen before the whole is.
    #[test]
    fn what_was_there_stays_until_all_is_written() {
        let directory = scratch("parts");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("export");
        replace(&path, b"before").unwrap();
        for whole in [false, true] {
            let mut file = Replacement::open(&path).unwrap();
            file.add(b"one ").unwrap();
            file.add(b"two").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"before");
            if whole {
                file.done().unwrap();
            }
        }
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn parallel_changes_are_all_kept() {
        let directory = scratch("parallel");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let directory = &directory;
                scope.spawn(move || {
                    let mut runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = runtime.enable_time().build().unwrap();
                    let changing = change(directory, |s| {
                        let session = Session {
                            token: n.to_string().into(),
                            refresh: None,
                            ca: None,
                            user: String::new(),
                            expires_at: None,
                            ends_at: None,
                        };
                        s.hubs.insert(format!("https://hub{n}"), session);
                    });
                    runtime.block_on(changing).unwrap();
                });
            }
        });
        assert_eq!(load(&directory).unwrap().hubs.len(), 8);
        fs::remove_dir_all(directory).unwrap();
    }
}
