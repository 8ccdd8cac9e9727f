//! Single frames before a line runs: the handshake's messages.

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::super::handshake::MAX_HANDSHAKE;
use super::super::websocket::close;
use super::socket::{Socket, SocketError};
use crate::wire::frame::{self, Frame};

/// A frame of the handshake has to pass in this time.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("the peer said nothing for 5 s")]
    Late,
    #[error("the peer's message is not one frame of the handshake")]
    Shape,
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Sends a message of one frame.
pub async fn send<S>(socket: &mut Socket<S>, frame: &Frame) -> Result<(), ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    socket.put(|out| frame::encode(frame, out));
    let sent = timeout(PATIENCE, poll_fn(|cx| socket.poll_send(cx))).await;
    sent.map_err(|_| ExchangeError::Late)?
        .map_err(|error| SocketError::from(error).into())
}

/// Receives a message of one frame.
pub async fn receive<S>(socket: &mut Socket<S>) -> Result<Frame, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = timeout(PATIENCE, poll_fn(|cx| socket.poll_message(cx)))
        .await
        .map_err(|_| ExchangeError::Late)??;
    if message.len() > MAX_HANDSHAKE {
        return Err(ExchangeError::Shape);
    }
    match frame::decode(&mut message) {
        Ok(Some(frame)) if message.is_empty() => Ok(frame),
        _ => Err(ExchangeError::Shape),
    }
}

/// Closes after a REFUSE; a goodbye is a courtesy, the peer has its answer.
pub async fn refuse<S>(mut socket: Socket<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if timeout(super::CLOSING, socket.close(close::POLICY))
        .await
        .is_err()
    {
        tracing::debug!("the peer took no goodbye");
    }
}
