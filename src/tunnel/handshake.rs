//! Challenge, hello and welcome: what is signed and what is checked, without a socket.
