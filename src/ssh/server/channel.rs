//! One channel of a connection: waits for its command, runs it, says how it ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{Command, Full, Right, Shared};
use crate::keys::Public;

/// Longer commands are refused.
const MAX_COMMAND: usize = 1024;
const STDERR: u32 = 1;
const LOST: &str = "the key may not do this any more";
const UNKNOWN: &str = "the key cannot be looked up at this moment; try again in a few seconds";
/// A client that reads nothing is not told why.
const TOLD: Duration = Duration::from_secs(1);

/// What the client sends to the command's standard input.
pub struct Input {
    half: ChannelReadHalf,
    ended: bool,
}

impl Input {
    /// The next piece; `None` at the end, and for ever after it.
    pub async fn read(&mut self) -> Option<Bytes> {
        while !self.ended {
            match self.half.wait().await {
                Some(ChannelMsg::Data { data }) => return Some(data),
                Some(ChannelMsg::Eof | ChannelMsg::Close) | None => self.ended = true,
                Some(_) => {}
            }
        }
        None
    }
}

/// The one variable that is taken over, with the values that Git gives it.
pub(super) fn git_protocol<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    let known = matches!(value, "version=0" | "version=1" | "version=2");
    (name == "GIT_PROTOCOL" && known).then_some(value)
}

pub(super) async fn serve<A: Clone + Send + Sync + 'static>(
    channel: Channel<Msg>,
    handle: Handle,
    shared: Arc<Shared<A>>,
    (key, peer): (Public, SocketAddr),
) {
    let id = channel.id();
    let (mut read, write) = channel.split();
    let waiting = timeout(shared.server.limits.auth, wait(&mut read)).await;
    let status = match waiting {
        // Asked again: a connection may outlive the right that it began with.
        Ok(Some(Wish::Exec { text, git_protocol })) => match (
            (shared.server.authorize)(key).await,
            shared.places.take(key),
        ) {
            (Right::Held(who), Ok(place)) => {
                let covered = (shared.server.covers)(&who, &text).then(|| text.clone());
                let command = Command {
                    who,
                    key,
                    peer,
                    text,
                    git_protocol,
                    input: Input {
                        half: read,
                        ended: false,
                    },
                    output: Box::pin(write.make_writer()),
                    errors: Box::pin(write.make_writer_ext(Some(STDERR))),
                };
                let status = tokio::select! {
                    status = (shared.server.run)(command) => status,
                    () = lost(&shared, key, covered.as_deref()) => {
                        debug!(%peer, key = %key.fingerprint(), "SSH command cut: the key lost its right");
                        refuse(&write, LOST).await
                    }
                };
                drop(place);
                status
            }
            (Right::Held(_), Err(full)) => refuse(&write, busy(full)).await,
            (Right::None, _) => refuse(&write, LOST).await,
            (Right::Unknown, _) => refuse(&write, UNKNOWN).await,
        },
        Ok(Some(Wish::Refused(why))) => refuse(&write, why).await,
        Ok(None) | Err(_) => 1,
    };
    // A client that is gone needs no goodbye.
    handle.exit_status_request(id, status).await.ok();
    handle.eof(id).await.ok();
    handle.close(id).await.ok();
    debug!(status, "SSH command ended");
}

/// Returns once the key may not do what it runs any more: nothing at all, or not the command that it was `covered` for.
async fn lost<A>(shared: &Shared<A>, key: Public, covered: Option<&str>) {
    loop {
        sleep(shared.server.limits.again).await;
        let goes_on = match (shared.server.authorize)(key).await {
            Right::Held(who) => covered.is_none_or(|text| (shared.server.covers)(&who, text)),
            Right::None => false,
            Right::Unknown => true,
        };
        if !goes_on {
            return;
        }
    }
}

enum Wish {
    Exec {
        text: String,
        git_protocol: Option<String>,
    },
    Refused(&'static str),
}

async fn wait(read: &mut ChannelReadHalf) -> Option<Wish> {
    let mut protocol = None;
    loop {
        match read.wait().await? {
            ChannelMsg::SetEnv {
                variable_name,
                variable_value,
                ..
            } => {
                if let Some(value) = git_protocol(&variable_name, &variable_value) {
                    protocol = Some(value.to_owned());
                }
            }
            ChannelMsg::Exec { command, .. } => {
                if command.len() > MAX_COMMAND {
                    return Some(Wish::Refused("the command is too long"));
                }
                return Some(match String::from_utf8(command) {
                    Ok(text) => Wish::Exec {
                        text,
                        git_protocol: protocol,
                    },
                    Err(_) => Wish::Refused("the command is not in UTF-8"),
                });
            }
            ChannelMsg::RequestShell { .. } => {
                return Some(Wish::Refused(
                    "your key is known; there is no shell here, only the catalog for git",
                ));
            }
            ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

fn busy(full: Full) -> &'static str {
    match full {
        Full::Server => "too many Git sessions at once; try again in a few seconds",
        Full::Key => "too many Git sessions at once with this key; try again in a few seconds",
    }
}

async fn refuse(write: &ChannelWriteHalf<Msg>, why: &'static str) -> u32 {
    let text = format!("linesman: {why}\n");
    timeout(TOLD, write.extended_data_bytes(STDERR, text))
        .await
        .ok();
    1
}
