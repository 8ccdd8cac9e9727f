//! The catalog repository: clone, commit, push.
