//! What users meet when something of the line breaks: for how long a request waits, and what becomes of watches.
//!
//! Four processes: the real hub with its store, the agents' links and forwarders of [`CLUSTERS`] clusters, a stand-in for their
//! API servers, and the users, who ask each cluster for something all the time and hold watches on it ([`users`]). So the
//! hub or the agents can end while the others stay. With a link, users and hub are on one side of it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use linesman::clock;
use linesman::hub::access::{Clusters, Grant, Mode, Subject};
use linesman::hub::registration::{Prefix, TokenText};
use linesman::hub::store::{ApiToken, Store, UserRow};
use linesman::hub::{Hub, serve};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::load::Figures;
use crate::net::Link;
use crate::suite::{Kind, Process, fixed_address, own, wait_long};
use crate::{Options, storm};

mod agents;
mod api;
mod users;

pub(crate) const CLUSTERS: usize = 20;
const ANY: &str = "127.0.0.1:0";
/// What the hub's own command line gives what runs when it ends.
const DRAIN: Duration = Duration::from_secs(10);

/// One of the four, or the user beside them.
pub(crate) async fn end(side: &str, address: &str, directory: &Path) {
    let data = data(directory);
    match side {
        "hub" => Box::pin(hub(address, &data)).await,
        "agent" => agents::run(&data, address).await,
        "api" => api::run(address).await,
        "user" => users::run(&data).await,
        "beside" => users::beside(address, directory).await,
        other => panic!("no such end: {other}"),
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join("recovery-hub")
}

/// One of the four, from outside.
struct Part {
    process: Process,
    said: mpsc::Receiver<String>,
}

impl Part {
    fn start(options: &Options, [side, kind, address]: [&str; 3], link: Option<&Link>) -> Self {
        // Users are where the hub is, and API servers where their agents are.
        let place = match side {
            "hub" | "user" | "beside" => "hub",
            _ => "agent",
        };
        let mut command = own(place, link);
        command.args(["end", side, kind, address]).arg(&options.out);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let (lines, said) = mpsc::channel();
        process.forward(&lines);
        Self { process, said }
    }

    fn wait(&self, prefix: &str) -> Option<String> {
        wait_long(&self.said, prefix)
    }

    fn say(&mut self, word: &str) {
        let input = self.process.0.stdin.as_mut().unwrap();
        writeln!(input, "{word}").unwrap();
    }

    /// As Kubernetes does it.
    fn terminate(&self) {
        kill_process(Pid::from_child(&self.process.0), Signal::TERM).unwrap();
    }
}

/// One measurement: all four, the fault, and what the users say of it once it is over.
pub(crate) fn measured(
    options: &Options,
    fault: &str,
    kind: Kind,
    link: Option<&Link>,
) -> Option<Figures> {
    if kind == Kind::Tls {
        return beside(options, fault, link?);
    }
    // The certificate of the run before may be for another address.
    drop(std::fs::remove_dir_all(data(&options.out)));
    let start = |side: &str, address: &str| Part::start(options, [side, "recovery", address], link);
    let api = start("api", ANY);
    let server = api.wait("LISTEN ")?;
    // Nobody starts a hub again behind a link.
    let address = link.map_or_else(fixed_address, |_| format!("{}:0", Link::address("hub")));
    let mut hub = start("hub", &address);
    let address = hub.wait("LISTEN ")?;
    let mut agents = start("agent", &server);
    agents.wait("UP")?;
    let mut users = start("user", ANY);
    users.wait("SERVED")?;
    users.say("FAULT");
    match (fault, link) {
        ("hub-stop", _) => {
            hub.terminate();
            hub.wait("ENDED")?;
            drop(hub);
            hub = start("hub", &address);
            hub.wait("LISTEN ")?;
        }
        ("hub-kill", _) => {
            drop(hub);
            hub = start("hub", &address);
            hub.wait("LISTEN ")?;
        }
        ("agent-stop", _) => {
            agents.terminate();
            let next = start("agent", &server);
            next.wait("UP")?;
            agents.wait("ENDED")?;
            agents = next;
        }
        ("agent-kill", _) => {
            drop(agents);
            agents = start("agent", &server);
        }
        (loss, Some(link)) => lose(loss, link),
        (other, None) => panic!("no such fault: {other}"),
    }
    users.say("OVER");
    let result = users.wait("RESULT ")?;
    drop((agents, hub, api));
    serde_json::from_str(&result).ok()
}

/// One connection of TLS without anything else, under the same loss.
fn beside(options: &Options, fault: &str, link: &Link) -> Option<Figures> {
    let start = |side: &str, kind: &str, address: &str| {
        Part::start(options, [side, kind, address], Some(link))
    };
    let echo = start("agent", "tls", &format!("{}:0", Link::address("agent")));
    let mut user = start("beside", "recovery", &echo.wait("LISTEN ")?);
    user.wait("SERVED")?;
    user.say("FAULT");
    lose(fault, link);
    user.say("OVER");
    serde_json::from_str(&user.wait("RESULT ")?).ok()
}

/// `loss SECONDS`
fn lose(fault: &str, link: &Link) {
    let seconds = fault.strip_prefix("loss ").expect("a loss");
    link.cut();
    // The fault itself; nothing is waited for.
    std::thread::sleep(Duration::from_secs(seconds.parse().unwrap()));
    link.heal();
}

/// Done when the process is asked to end.
async fn asked_to_end() {
    signal(SignalKind::terminate()).unwrap().recv().await;
}

async fn hub(address: &str, data: &Path) {
    let (listeners, hub, chain) = storm::started(address, data, DRAIN, CLUSTERS).await;
    let known = data.with_extension("clusters");
    if !data.join(SEEDED).exists() {
        let mut ids = Vec::new();
        for n in 0..CLUSTERS {
            let cluster = hub.store.cluster(&storm::name(n)).await.unwrap().unwrap();
            ids.push(cluster.id);
        }
        std::fs::write(known, ids.join("\n")).unwrap();
        std::fs::write(data.with_extension("token"), user(&hub).await).unwrap();
        std::fs::write(data.join(SEEDED), "").unwrap();
    }
    println!("LISTEN {}", listeners.https.local_addr().unwrap());
    let stop = hub.stop.clone();
    let running = serve::run(listeners, hub, chain);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended.unwrap(),
        () = asked_to_end() => {
            stop.cancel();
            running.await.unwrap();
        }
    }
    println!("ENDED");
}

/// There once the hub with this data directory has its user.
const SEEDED: &str = "seeded";
const USER: &str = "ada";

/// The API token of a user who may do everything everywhere.
async fn user(hub: &Hub) -> String {
    let now = clock::now();
    let grant = Grant {
        id: "grant-ada".to_owned(),
        subject: Subject::User(USER.to_owned()),
        clusters: Clusters::All,
        groups: ["admin".to_owned()].into(),
        act_as: [].into(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: None,
        revoked_at: None,
        revoked_by: None,
        reason: String::new(),
        created_by: "bench".to_owned(),
        created_at: now,
        rev: 1,
    };
    hub.store.add_grant(grant, None, now).await.unwrap();
    token(&hub.store).await
}

async fn token(store: &Store) -> String {
    let row = UserRow {
        id: "id-ada".to_owned(),
        name: USER.to_owned(),
        roles: vec![],
        groups: vec![],
        disabled: false,
        provider: None,
        rev: 1,
    };
    let user = store.ensure_user(row).await.unwrap();
    let token = TokenText::new(clock::random(), clock::random());
    let record = ApiToken {
        id: token.id.clone(),
        user_id: user.id,
        hash: token.hash(),
        title: "bench".to_owned(),
        scopes: vec![],
        clusters: None,
        created_by: "bench".to_owned(),
        created_at: clock::now(),
        expires_at: None,
        revoked_at: None,
    };
    store.add_api_token(record, None).await.unwrap();
    token.text(Prefix::Api).into_inner()
}
