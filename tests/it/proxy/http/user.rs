//! A user who reads HTTP/1 to the byte.

use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::super::world::{PATIENCE, World};

/// An answer as a user has it, without what is new in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// HTTP/1.1's status line, or the code.
    pub(super) status: String,
    pub(super) headers: Vec<String>,
    pub(super) body: Vec<u8>,
}

pub(super) fn told(status: &str, headers: &[&str], body: &[u8]) -> Told {
    let mut headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
    headers.push("x-content-type-options: nosniff".to_owned());
    headers.sort();
    Told {
        status: status.to_owned(),
        headers,
        body: body.to_vec(),
    }
}

/// Of a head's lines, or of HTTP/2's.
pub(super) fn kept<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let new = ["date", "x-request-id"];
    let mut kept: Vec<String> = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !new.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    kept.sort();
    kept
}

/// A connection on which answers are read by their framing, to the byte.
pub(super) struct User<S> {
    pub(super) io: BufReader<S>,
}

impl<S: AsyncRead + Unpin> User<S> {
    pub(super) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.io.read_u8().await.unwrap());
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    pub(super) async fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.io.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// The next answer, to this method.
    pub(super) async fn answer(&mut self, method: &str) -> Told {
        let status = self.line().await;
        let bare = [" 204 ", " 304 "].iter().any(|code| status.contains(code));
        let mut lines = Vec::new();
        loop {
            match self.line().await {
                line if line.is_empty() => break,
                line => lines.push(line),
            }
        }
        let headers = kept(lines.iter().map(|line| line.split_once(": ").unwrap()));
        let value = |name: &str| {
            let line = headers.iter().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.strip_prefix(": "))
        };
        let mut body = Vec::new();
        if bare || method == "HEAD" {
            // Whatever its head says.
        } else if value("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line().await, 16).unwrap();
                body.extend(self.exactly(size).await);
                assert_eq!(self.line().await, "", "behind a chunk");
                if size == 0 {
                    break;
                }
            }
        } else if let Some(len) = value("content-length") {
            body = self.exactly(len.parse().unwrap()).await;
        } else {
            self.io.read_to_end(&mut body).await.unwrap();
        }
        Told {
            status,
            headers,
            body,
        }
    }

    /// Nothing follows, and the hub says goodbye.
    pub(super) async fn end(&mut self) {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, self.io.read_to_end(&mut rest)).await;
        let ended = ended.expect("the connection ends");
        assert_eq!(ended.map_err(|error| error.kind()), Ok(0), "{rest:?}");
    }
}

pub(super) async fn user(world: &World) -> User<TlsStream<TcpStream>> {
    User {
        io: BufReader::new(world.connect(&[]).await),
    }
}
