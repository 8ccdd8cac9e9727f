//! The database's files are made for their owner alone, in whatever directory they are, and are never for all to read.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// SQLite makes those beside the database as the database is.
const FILES: [&str; 3] = [super::FILE, "hub.db-wal", "hub.db-shm"];
/// What those may do with a file who are neither its owner nor in its group: that one may be a backup's, and is the operator's word.
const OF_OTHERS: u32 = 0o007;

/// Before the first connection: closing a file that SQLite has open would take its locks away.
pub(super) fn keep(data: &Path) {
    // What keeps it from being made, SQLite says itself.
    let _made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(data.join(super::FILE));
    for name in FILES {
        tighten(&data.join(name));
    }
}

/// A hub of before let others read it.
fn tighten(path: &Path) {
    let Ok(found) = path.metadata() else {
        return;
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & OF_OTHERS == 0 {
        return;
    }
    let own = Permissions::from_mode(mode & !OF_OTHERS);
    let file = path.display();
    match std::fs::set_permissions(path, own) {
        Ok(()) => tracing::info!(
            %file,
            "others of this machine could read the hub's records; only the file's owner and its group may now"
        ),
        Err(error) => tracing::warn!(
            %file,
            %error,
            "others of this machine may read the hub's records: let the hub's user own the file, or run 'chmod o= FILE'"
        ),
    }
}
