//! Flux: its install, its Git Secret, its root objects, and what their health means.
