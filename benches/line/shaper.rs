//! A long way in user space, for machines whose kernel has no `netem`: every connection through it has this rate and this delay
//! each way, and a queue of 20 ms. No TCP of its own crosses it, so what goes straight through fills it at once: a real
//! TCP connection would first have to grow its window.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What stands before the rate.
const QUEUE: Duration = Duration::from_millis(20);
const CHUNK: usize = 64 << 10;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) megabits: u32,
    /// There and back.
    pub(crate) rtt: Duration,
}

impl Way {
    /// Where to dial instead of `target`. Its threads end with their connections, the listener with the process.
    pub(crate) fn to(self, target: &str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = target.to_owned();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&target) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    from.set_nodelay(true).unwrap();
                    self.carry(from.try_clone().unwrap(), to.try_clone().unwrap());
                }
            }
        });
        address
    }

    fn carry(self, mut from: TcpStream, mut to: TcpStream) {
        let delay = self.rtt / 2;
        let bytes_a_second = f64::from(self.megabits) * 125_000.0;
        let (queue, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
        thread::spawn(move || {
            let mut free = Instant::now();
            let mut buffer = vec![0; CHUNK];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                let passes = Duration::from_secs_f64(len as f64 / bytes_a_second);
                free = free.max(Instant::now()) + passes;
                if queue.send((free + delay, buffer[..len].to_vec())).is_err() {
                    return;
                }
                // The rest waits with the sender.
                thread::sleep(free.saturating_duration_since(Instant::now() + QUEUE));
            }
        });
        thread::spawn(move || {
            for (at, bytes) in arriving {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            drop(to.shutdown(Shutdown::Both));
        });
    }
}
