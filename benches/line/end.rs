//! One end of a measurement, in its own process.
//!
//! `end [no-lowat] SIDE KIND ADDRESS DIRECTORY [SCENARIO...]`. The side that listens prints `LISTEN <address>`, the hub's
//! side at last `RESULT <JSON>`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use linesman::clock::Steady;
use linesman::tunnel::driver::{self, Ahead, Identity, Socket};
use linesman::tunnel::session::{Config, Role};
use linesman::tunnel::{Incoming, Line};
use linesman::wire::frame::{Class, Kind};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use crate::load::{self, Duplex};
use crate::peers::{self, YamuxOpener};
use crate::{machine, proxied, recovery, storm};

/// Where new streams come from.
pub(crate) enum Opener {
    Line(Line),
    Tls {
        connector: TlsConnector,
        address: String,
    },
    H2(SendRequest<Bytes>),
    Yamux(YamuxOpener),
}

impl Opener {
    pub(crate) async fn open(&self) -> std::io::Result<Duplex> {
        match self {
            Self::Line(line) => {
                let stream = line.open(Kind::Api, Class::Normal, Bytes::new()).await?;
                Ok(Box::new(stream))
            }
            Self::Tls { connector, address } => {
                let socket = TcpStream::connect(address).await?;
                socket.set_nodelay(true)?;
                Ok(Box::new(connector.connect(name(), socket).await?))
            }
            Self::H2(sender) => peers::h2_open(sender).await,
            Self::Yamux(opener) => peers::yamux_open(opener).await,
        }
    }
}

/// What an end was asked for, but which one it is.
struct Asked<'a> {
    /// To listen on, or to dial.
    address: &'a str,
    directory: &'a Path,
    scenario: &'a [String],
    /// Sets the options of the TCP connection that carries the streams.
    tune: fn(&TcpStream),
}

/// The first word of an end whose kernel may keep as many unsent bytes as the system lets it.
pub(crate) const NO_LOWAT: &str = "no-lowat";

/// As [`driver::tune`], but for `TCP_NOTSENT_LOWAT`: 0 gives that back to the system, which has no bound by default.
fn tune_without_lowat(socket: &TcpStream) {
    driver::tune(socket);
    SockRef::from(socket).set_tcp_notsent_lowat(0).unwrap();
}

pub(crate) fn run(args: &[String]) {
    let (tune, args): (fn(&TcpStream), _) = match args {
        [first, rest @ ..] if first == NO_LOWAT => (tune_without_lowat, rest),
        _ => (driver::tune, args),
    };
    let [side, kind, address, directory, scenario @ ..] = args else {
        panic!("end [{NO_LOWAT}] SIDE KIND ADDRESS DIRECTORY [SCENARIO...]");
    };
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let directory = Path::new(directory);
    let asked = Asked {
        address,
        directory,
        scenario,
        tune,
    };
    let work = async {
        match (side.as_str(), kind.as_str()) {
            ("hub", "line") => hub(&asked).await,
            ("agent", "line") => agent(&asked).await,
            ("hub", "tls") => {
                let opener = Opener::Tls {
                    connector: connector(directory),
                    address: address.clone(),
                };
                report(Arc::new(opener), scenario).await;
            }
            ("agent", "tls") => sources(address, directory).await,
            ("hub", "h2" | "yamux") => peer_hub(kind, &asked).await,
            ("agent", "h2" | "yamux") => peer_agent(kind, &asked).await,
            ("proxy", "tls") => proxied::run(address, &scenario[0], directory).await,
            ("hub", "storm") => storm::hub(address, directory, count(scenario)).await,
            ("agent", "storm") => storm::agents(directory, count(scenario)).await,
            (_, "recovery") => Box::pin(recovery::end(side, address, directory)).await,
            other => panic!("no such end: {other:?}"),
        }
    };
    runtime.block_on(work);
    // What still runs is of no interest any more.
    runtime.shutdown_background();
}

async fn report(opener: Arc<Opener>, scenario: &[String]) {
    let result = load::run(opener, scenario).await;
    println!("RESULT {}", serde_json::to_string(&result).unwrap());
}

/// Lines that the scenario asks for.
fn lines(scenario: &[String]) -> usize {
    if scenario[0] == "idle" {
        count(scenario)
    } else {
        1
    }
}

fn count(scenario: &[String]) -> usize {
    scenario[1].parse().unwrap()
}

async fn hub(asked: &Asked<'_>) {
    let scenario = asked.scenario;
    let listener = listen(asked.address).await;
    let acceptor = acceptor(asked.directory);
    let mut tasks = JoinSet::new();
    let mut held = Vec::new();
    let start = Instant::now();
    let before = machine::used();
    for _ in 0..lines(scenario) {
        let (socket, _) = listener.accept().await.unwrap();
        (asked.tune)(&socket);
        let tls = acceptor.accept(Ahead::new(socket)).await.unwrap();
        let socket = Socket::new(tls, Role::Hub, Bytes::new());
        let streams = mpsc::channel(1).0;
        let config = Config::new(Role::Hub);
        let stop = CancellationToken::new();
        let (line, running) = driver::line(socket, config, identity(), streams, stop);
        tasks.spawn(running);
        held.push(line);
    }
    let up = start.elapsed();
    let opener = Arc::new(Opener::Line(held[0].clone()));
    if scenario[0] == "idle" {
        let figures = load::idle(opener, before, held.len(), up).await;
        println!("RESULT {}", serde_json::to_string(&figures).unwrap());
    } else {
        report(opener, scenario).await;
    }
}

async fn agent(asked: &Asked<'_>) {
    let connector = connector(asked.directory);
    let (streams, mut incoming) = mpsc::channel::<Incoming>(16_384);
    let mut tasks = JoinSet::new();
    let mut held = Vec::new();
    for _ in 0..lines(asked.scenario) {
        let socket = TcpStream::connect(asked.address).await.unwrap();
        (asked.tune)(&socket);
        let mut tls = connector.connect(name(), Ahead::new(socket)).await.unwrap();
        tls.get_mut().1.set_buffer_limit(Some(driver::TLS_BUFFER));
        let socket = Socket::new(tls, Role::Agent, Bytes::new());
        let config = Config::new(Role::Agent);
        let stop = CancellationToken::new();
        let (line, running) = driver::line(socket, config, identity(), streams.clone(), stop);
        tasks.spawn(async move { drop(running.await) });
        held.push(line);
    }
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            next = incoming.recv() => match next {
                Some(next) => { served.spawn(load::serve(Box::new(next.stream))); }
                None => return,
            },
            Some(_) = served.join_next() => {}
            _ = tasks.join_next() => return,
        }
    }
}

async fn peer_hub(kind: &str, asked: &Asked<'_>) {
    let listener = listen(asked.address).await;
    let (socket, _) = listener.accept().await.unwrap();
    (asked.tune)(&socket);
    let tls = acceptor(asked.directory).accept(socket).await.unwrap();
    let mut tasks = JoinSet::new();
    let opener = if kind == "h2" {
        Opener::H2(peers::h2_hub(Box::new(tls), &mut tasks).await)
    } else {
        Opener::Yamux(peers::yamux(Box::new(tls), yamux::Mode::Server, &mut tasks))
    };
    report(Arc::new(opener), asked.scenario).await;
}

async fn peer_agent(kind: &str, asked: &Asked<'_>) {
    let socket = TcpStream::connect(asked.address).await.unwrap();
    (asked.tune)(&socket);
    let tls = connector(asked.directory).connect(name(), socket);
    let tls = tls.await.unwrap();
    if kind == "h2" {
        return peers::h2_agent(Box::new(tls)).await;
    }
    let mut tasks = JoinSet::new();
    let _opener = peers::yamux(Box::new(tls), yamux::Mode::Client, &mut tasks);
    tasks.join_next().await;
}

/// The agent's side of plain TLS: it listens, a connection is a stream.
async fn sources(address: &str, directory: &Path) {
    let listener = listen(address).await;
    let acceptor = acceptor(directory);
    let mut served = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let acceptor = acceptor.clone();
        served.spawn(async move {
            if let Ok(tls) = acceptor.accept(socket).await {
                load::serve(Box::new(tls)).await;
            }
        });
        while served.try_join_next().is_some() {}
    }
}

/// Binds, and says where.
pub(crate) async fn listen(address: &str) -> TcpListener {
    let listener = TcpListener::bind(address).await.unwrap();
    println!("LISTEN {}", listener.local_addr().unwrap());
    listener
}

fn identity() -> Identity {
    Identity {
        epoch: 1,
        session: String::new(),
        remote: String::new(),
        instance: String::new(),
        since: linesman::clock::now(),
        hub_clock: Steady::new(0, Instant::now()),
        cap: None,
    }
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("hub.bench").unwrap()
}

fn acceptor(directory: &Path) -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(server(directory)))
}

pub(crate) fn connector(directory: &Path) -> TlsConnector {
    TlsConnector::from(Arc::new(client(directory)))
}

pub(crate) fn server(directory: &Path) -> ServerConfig {
    let certificate = CertificateDer::from_pem_file(directory.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap();
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

pub(crate) fn client(directory: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(directory.join("cert.pem")).unwrap();
    roots.add(certificate).unwrap();
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}
