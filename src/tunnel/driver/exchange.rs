//! Single frames before a line runs: the handshake's messages.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::super::websocket::close;
use super::socket::{Socket, SocketError};
use crate::wire::frame::{self, Frame};

/// A frame of the handshake has to pass in this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages of nothing but what this build does not know, before the one that is waited for.
const MAX_SKIPPED: usize = 16;

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

/// Receives a message of one frame. Frames that only a newer build knows are skipped, as on a line that runs.
pub async fn receive<S>(socket: &mut Socket<S>) -> Result<Frame, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let known = async {
        for _ in 0..=MAX_SKIPPED {
            let message = poll_fn(|cx| socket.poll_message(cx)).await?;
            if let Some(frame) = only(message)? {
                return Ok(frame);
            }
        }
        Err(ExchangeError::Shape)
    };
    timeout(PATIENCE, known)
        .await
        .map_err(|_| ExchangeError::Late)?
}

/// The one frame of a message that this build knows; `None` where there is none.
fn only(mut message: Bytes) -> Result<Option<Frame>, ExchangeError> {
    if message.is_empty() {
        return Err(ExchangeError::Shape);
    }
    let mut only = None;
    while let Some(frame) = frame::decode(&mut message).map_err(|_| ExchangeError::Shape)? {
        match frame {
            Frame::Skipped => {}
            _ if only.is_some() => return Err(ExchangeError::Shape),
            frame => only = Some(frame),
        }
    }
    Ok(only)
}

impl ExchangeError {
    /// The code to close with where it is the peer that broke the protocol.
    pub fn fault(&self) -> Option<u16> {
        match self {
            Self::Shape => Some(close::PROTOCOL),
            Self::Socket(SocketError::Framing(broken)) => Some(broken.code),
            Self::Late | Self::Socket(SocketError::Io(_) | SocketError::Closed) => None,
        }
    }
}

/// Closes after a REFUSE; a goodbye is a courtesy, the peer has its answer.
pub async fn refuse<S>(socket: Socket<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    goodbye(socket, close::POLICY).await;
}

/// Closes a handshake that failed, with a code where the peer broke the protocol.
pub async fn reject<S>(socket: Socket<S>, error: &ExchangeError)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Some(code) = error.fault() {
        goodbye(socket, code).await;
    }
}

async fn goodbye<S>(mut socket: Socket<S>, code: u16)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let closing = async {
        if socket.close(code).await.is_ok() {
            socket.rest().await;
        }
    };
    if timeout(super::CLOSING, closing).await.is_err() {
        tracing::debug!("the peer took no goodbye");
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::duplex;

    use super::*;
    use crate::tunnel::session::Role;

    fn unknown(out: &mut BytesMut) {
        out.extend_from_slice(&[0x90, 0, 0, 0, 2, 0, 0, 0, 0, 1, 2]);
    }

    fn challenge() -> Frame {
        Frame::Challenge(Bytes::from_static(b"{}"))
    }

    /// What an agent receives of these messages of a hub.
    async fn received(messages: &[&dyn Fn(&mut BytesMut)]) -> Result<Frame, ExchangeError> {
        let (hub, agent) = duplex(64 << 10);
        let mut hub = Socket::new(hub, Role::Hub, Bytes::new());
        for message in messages {
            hub.put(message);
            poll_fn(|cx| hub.poll_send(cx)).await.unwrap();
        }
        receive(&mut Socket::new(agent, Role::Agent, Bytes::new())).await
    }

    /// L18
    #[tokio::test]
    async fn what_only_a_newer_build_knows_is_skipped_in_a_handshake() {
        let among = |out: &mut BytesMut| {
            unknown(out);
            frame::encode(&challenge(), out);
            unknown(out);
        };
        assert_eq!(received(&[&unknown, &among]).await.unwrap(), challenge());
        let twice = |out: &mut BytesMut| {
            frame::encode(&challenge(), out);
            frame::encode(&challenge(), out);
        };
        for endless in [&[&unknown as &dyn Fn(&mut BytesMut); 17][..], &[&twice]] {
            let error = received(endless).await.unwrap_err();
            assert!(matches!(error, ExchangeError::Shape), "{error}");
        }
    }
}
