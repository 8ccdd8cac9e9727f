//! Open files: each connection takes one, and a hub that has too few can neither let agents in nor start a git.

use tracing::warn;

use crate::lifetime::files::raise;

/// For as many connections as the hub takes, and for what else it has open.
const FILES: u64 = 24_000;

/// Takes as many as the system lets it have, and says where those are too few.
pub(super) fn take() {
    let files = raise(FILES);
    if let Some(files) = files.filter(|files| *files < FILES) {
        warn!(
            files,
            "each connection takes a file, and the system lets the hub have few: give it {FILES} (LimitNOFILE= of a systemd unit, \
             ulimit -Hn)"
        );
    }
}
