//! The line's endpoint: WebSocket upgrade and handshake.
