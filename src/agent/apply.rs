//! One step becomes a server-side apply, a delete or a restart.
