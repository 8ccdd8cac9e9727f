//! See the file's tests.
