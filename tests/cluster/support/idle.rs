//! A TCP proxy that has no patience with silence, as balancers are: a connection on which nothing passes for a while, in either
//! direction, is cut.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Serves until the process ends.
pub(crate) struct Impatient {
    pub(crate) port: u16,
    cut: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
}

impl Impatient {
    pub(crate) fn before(to: SocketAddr, patience: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, opened) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (cuts, opens) = (cut.clone(), opened.clone());
        thread::spawn(move || {
            for user in listener.incoming().map_while(Result::ok) {
                opens.fetch_add(1, Ordering::Relaxed);
                let cuts = cuts.clone();
                thread::spawn(move || {
                    if let Ok(server) = TcpStream::connect(to)
                        && carry(&user, &server, patience)
                    {
                        cuts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { port, cut, opened }
    }

    /// Connections that were cut, and all that ever were.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (
            self.cut.load(Ordering::Relaxed),
            self.opened.load(Ordering::Relaxed),
        )
    }
}

/// Whether it was cut.
fn carry(user: &TcpStream, server: &TcpStream, patience: Duration) -> bool {
    let (passed, seen) = channel();
    thread::scope(|scope| {
        for (from, to) in [(user, server), (server, user)] {
            let passed = passed.clone();
            scope.spawn(move || {
                // An error ends it like an end.
                drop(way(from, to, &passed));
                drop(to.shutdown(Shutdown::Write));
            });
        }
        drop(passed);
        loop {
            match seen.recv_timeout(patience) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    for socket in [user, server] {
                        drop(socket.shutdown(Shutdown::Both));
                    }
                    return true;
                }
            }
        }
    })
}

fn way(mut from: &TcpStream, mut to: &TcpStream, passed: &Sender<()>) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            len => to.write_all(&bytes[..len])?,
        }
        if passed.send(()).is_err() {
            // It was cut.
            return Ok(());
        }
    }
}
