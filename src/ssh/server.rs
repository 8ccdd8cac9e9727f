//! An SSH server that runs commands and nothing else: public keys only; no shell, terminal, subsystem,
//! forwarding; of the environment `GIT_PROTOCOL` alone. Who a key is and what a command does, the caller says.

mod channel;
mod connection;
mod room;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::BoxFuture;
use tokio::io::AsyncWrite;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use channel::Input;

use super::HostPair;
use crate::keys::Public;

/// What a client may use up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Commands running at once, of all keys.
    pub sessions: usize,
    pub sessions_per_key: usize,
    /// Connections of clients that have said who they are; over that the oldest of the key that has the most makes way.
    pub connections: usize,
    /// Connections of those that have not, of all addresses and of one; over that the oldest make way.
    pub strangers: usize,
    pub strangers_per_address: usize,
    /// Time to say who one is.
    pub auth: Duration,
    /// Keys that may be tried.
    pub auth_tries: usize,
    /// Silence in both directions.
    pub idle: Duration,
    /// A connection's whole life.
    pub life: Duration,
    /// How often it is asked anew whether a key may go on with what it runs.
    pub again: Duration,
    /// Time for running commands to end when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 64,
            sessions_per_key: 4,
            connections: 128,
            strangers: 128,
            strangers_per_address: 32,
            auth: Duration::from_secs(10),
            auth_tries: 3,
            idle: Duration::from_mins(1),
            life: Duration::from_mins(10),
            again: Duration::from_secs(1),
            drain: Duration::from_secs(5),
        }
    }
}

/// What the server is told by its caller. `A` is what a key's owner may do.
pub struct Server<A> {
    /// Shown to each connection as it is when that begins.
    pub host_key: watch::Receiver<HostPair>,
    pub limits: Limits,
    /// Asked for each key that is offered, again once its ownership is proven, before each command, and while it runs.
    pub authorize: Authorize<A>,
    /// Whether what a key's holder may do takes in a command. One that it took in ends when it does not any more.
    pub covers: fn(&A, &str) -> bool,
    /// Runs a command; the answer is its exit status. Dropped when the client goes.
    pub run: Run<A>,
}

/// What a key's holder may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right<A> {
    Held(A),
    None,
    /// It could not be looked up: nobody begins anything, and what runs goes on. Nor is the key refused, by which its holder
    /// would take it for a bad one: the connection is cut.
    Unknown,
}

pub type Authorize<A> = Arc<dyn Fn(Public) -> BoxFuture<'static, Right<A>> + Send + Sync>;
pub type Run<A> = Arc<dyn Fn(Command<A>) -> BoxFuture<'static, u32> + Send + Sync>;
pub type Output = std::pin::Pin<Box<dyn AsyncWrite + Send>>;

/// One command that an authenticated client asks for.
pub struct Command<A> {
    pub who: A,
    pub key: Public,
    pub peer: SocketAddr,
    /// As the client wrote it; never passed to a shell.
    pub text: String,
    /// `GIT_PROTOCOL`, one of `version=0`, `version=1`, `version=2`.
    pub git_protocol: Option<String>,
    pub input: Input,
    pub output: Output,
    pub errors: Output,
}

/// Serves until `stop`; then takes no more connections and gives the open ones [`Limits::drain`] to end.
pub async fn serve<A: Clone + Send + Sync + 'static>(
    listener: TcpListener,
    server: Server<A>,
    stop: CancellationToken,
) -> Result<()> {
    let limits = server.limits;
    let mut host_key = server.host_key.clone();
    let first = host_key.borrow_and_update().clone();
    let mut config = Arc::new(connection::config(&first, &limits));
    let shared = Arc::new(Shared {
        places: Places::new(limits.sessions, limits.sessions_per_key),
        server,
    });
    let room = room::Room::new(&limits);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let seat = room.enter(peer.ip());
                    if host_key.has_changed().unwrap_or(false) {
                        let next = host_key.borrow_and_update().clone();
                        config = Arc::new(connection::config(&next, &limits));
                    }
                    let serve = connection::serve(socket, Arc::clone(&config), Arc::clone(&shared), (seat.clone(), stop.clone()));
                    connections.spawn(async move {
                        tokio::select! {
                            () = serve => {}
                            () = seat.dismissed() => debug!(%peer, "made room for another SSH connection"),
                        }
                    });
                }
                Err(error) => {
                    // Mostly a lack of file descriptors, which passes.
                    warn!(%error, "accept an SSH connection");
                    stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(200))).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

struct Shared<A> {
    server: Server<A>,
    places: Arc<Places>,
}

/// How many commands run, in all and by key.
struct Places {
    room: Arc<Semaphore>,
    per_key: usize,
    by_key: Mutex<HashMap<Public, usize>>,
}

/// Held while a command runs.
struct Place {
    places: Arc<Places>,
    key: Public,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    Server,
    Key,
}

impl Places {
    fn new(sessions: usize, per_key: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(sessions)),
            per_key,
            by_key: Mutex::new(HashMap::new()),
        })
    }

    fn take(self: &Arc<Self>, key: Public) -> Result<Place, Full> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if by_key.get(&key).copied().unwrap_or(0) >= self.per_key {
            return Err(Full::Key);
        }
        let room = Arc::clone(&self.room)
            .try_acquire_owned()
            .map_err(|_| Full::Server)?;
        *by_key.entry(key).or_default() += 1;
        drop(by_key);
        Ok(Place {
            places: Arc::clone(self),
            key,
            _room: room,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_key = self
            .places
            .by_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_in_all_and_by_key_and_come_back() {
        let places = Places::new(3, 2);
        let (a, b) = (Public([1; 32]), Public([2; 32]));
        let first = places.take(a);
        let second = places.take(a);
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(places.take(a).err(), Some(Full::Key));
        let third = places.take(b);
        assert!(third.is_ok());
        assert_eq!(places.take(b).err(), Some(Full::Server));
        drop((first, second, third));
        assert!(places.by_key.lock().unwrap().is_empty());
        assert!(places.take(a).is_ok());
    }

    /// H29: a client that says nothing holds no server up that stops.
    #[tokio::test]
    async fn a_silent_client_does_not_outlive_the_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (_keep, host_key) = watch::channel(HostPair::ed25519(&[7; 32]));
        let server = Server::<()> {
            host_key,
            limits: Limits {
                auth: Duration::from_mins(10),
                ..Limits::default()
            },
            authorize: Arc::new(|_| Box::pin(async { Right::None })),
            covers: |(), _| true,
            run: Arc::new(|_| Box::pin(async { 0 })),
        };
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let silent = async {
            // The server waits for the client's word from here on.
            let mut word = [0; 8];
            tokio::io::AsyncReadExt::read_exact(&mut client, &mut word)
                .await
                .unwrap();
            stop.cancel();
        };
        let serving = async { tokio::join!(serve(listener, server, stop.clone()), silent) };
        let both = tokio::time::timeout(Duration::from_secs(10), serving).await;
        assert!(both.expect("it stops").0.is_ok());
    }
}
