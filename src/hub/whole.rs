//! Files that are there whole or not at all.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes a file of these pieces; a crash in the middle leaves the former one. What an earlier crash or a full disk left in the way is
/// never written to: it may be of another file, which all may read, and a mode counts where a file is made.
pub(super) fn write(path: &Path, pieces: &[&str], mode: u32) -> Result<()> {
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        match std::fs::remove_file(&part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)?;
        for piece in pieces {
            file.write_all(piece.as_bytes())?;
        }
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_was_left_in_the_way_is_never_written_to() {
        let name = format!("linesman-whole-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        let at = |name: &str| data.join(name);
        std::fs::write(at("others"), "theirs").unwrap();
        std::fs::write(at("a.part"), "left").unwrap();
        std::fs::set_permissions(at("a.part"), std::fs::Permissions::from_mode(0o644)).unwrap();
        symlink(at("others"), at("b.part")).unwrap();
        for name in ["a.key", "b.key", "c.key"] {
            write(&at(name), &["sec", "ret\n"], 0o600).unwrap();
            let file = std::fs::symlink_metadata(at(name)).unwrap();
            assert_eq!(
                (file.is_file(), file.permissions().mode() & 0o777),
                (true, 0o600)
            );
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "secret\n");
        }
        let mut left: Vec<_> = std::fs::read_dir(&data)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["a.key", "b.key", "c.key", "others"]);
        assert_eq!(std::fs::read_to_string(at("others")).unwrap(), "theirs");
        std::fs::remove_dir_all(data).unwrap();
    }
}
