//! A proxy between the two that ends TLS and begins it anew, as a balancer before a hub does. It holds what its sockets and
//! its buffers hold, and knows nothing of what it carries.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::end;

/// What a peer may want to speak inside, gRPC the first; the other end is asked for the same.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// A record of TLS each way.
const BUFFER: usize = 16 << 10;

/// Prints where it listens, and carries what comes to `target`.
pub(crate) async fn run(address: &str, target: &str, directory: &Path) {
    let listener = end::listen(address).await;
    let mut server = end::server(directory);
    server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let client = end::client(directory);
    let mut carried = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let (target, acceptor, client) = (target.to_owned(), acceptor.clone(), client.clone());
        // How it ends is the ends' business.
        carried.spawn(async move { drop(carry(near, &target, acceptor, client).await) });
        while carried.try_join_next().is_some() {}
    }
}

async fn carry(
    near: TcpStream,
    target: &str,
    acceptor: TlsAcceptor,
    mut client: ClientConfig,
) -> io::Result<()> {
    near.set_nodelay(true)?;
    let mut near = acceptor.accept(near).await?;
    let chosen = near.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    client.alpn_protocols = chosen.into_iter().collect();
    let far = TcpStream::connect(target).await?;
    far.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::new(client));
    let mut far = connector.connect(end::name(), far).await?;
    copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await?;
    Ok(())
}
