//! Single frames before a line runs: the handshake's messages.

use std::time::Duration;

use bytes::BytesMut;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::handshake::MAX_HANDSHAKE;
use crate::wire::frame::{self, Frame};

/// A frame of the handshake has to pass in this time.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("the peer said nothing for 5 s")]
    Late,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer's message is not one frame of the handshake")]
    Shape,
    #[error("{0}")]
    Socket(String),
}

/// Sends a message of one frame.
pub async fn send<S>(socket: &mut WebSocketStream<S>, frame: &Frame) -> Result<(), ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = BytesMut::new();
    frame::encode(frame, &mut message);
    let sent = timeout(PATIENCE, socket.send(Message::Binary(message.freeze()))).await;
    sent.map_err(|_| ExchangeError::Late)?
        .map_err(|error| ExchangeError::Socket(error.to_string()))
}

/// Receives a message of one frame.
pub async fn receive<S>(socket: &mut WebSocketStream<S>) -> Result<Frame, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let next = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Binary(message))) => return Ok(message),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Err(ExchangeError::Closed),
                Some(Ok(_)) => return Err(ExchangeError::Shape),
                Some(Err(error)) => return Err(ExchangeError::Socket(error.to_string())),
            }
        }
    };
    let mut message = timeout(PATIENCE, next)
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
