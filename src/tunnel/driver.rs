//! The one select loop between WebSocket, timers, commands and the session.
