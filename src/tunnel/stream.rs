//! `AsyncRead` and `AsyncWrite` over one stream of a line.
