//! The hub as a process of its own, as an operator would run it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::place::{binary, output, run};
use super::{seconds, until};

/// A hub that can be stopped, killed and started again on the same data and ports.
pub(crate) struct Hub {
    pub(crate) directory: PathBuf,
    host: String,
    /// How clusters name this machine.
    name: String,
    image: String,
    ports: [u16; 3],
    /// What it logs when it is started the next time.
    pub(crate) level: &'static str,
    /// What makes it one of several.
    replica: Option<Replica>,
    child: Option<Child>,
}

/// What it logs unless a test wants more.
pub(crate) const LEVEL: &str = "info,linesman=debug";

/// A hub among others on the same data directory.
#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    /// The file with the database's URL.
    pub(crate) database: PathBuf,
    /// Where all of them are reached: HTTPS and Git.
    pub(crate) doors: [u16; 2],
}

impl Hub {
    pub(crate) fn start(directory: &Path, host: &str, name: &str, image: &str) -> Self {
        Self::start_as(directory, [host, name, image], None)
    }

    /// The same, alone or as one of several.
    pub(crate) fn start_as(
        directory: &Path,
        [host, name, image]: [&str; 3],
        replica: Option<Replica>,
    ) -> Self {
        let ports = free_ports(host);
        let (host, name, image) = (host.to_owned(), name.to_owned(), image.to_owned());
        let mut hub = Self {
            directory: directory.to_owned(),
            host,
            name,
            image,
            ports,
            level: LEVEL,
            replica,
            child: None,
        };
        hub.up();
        hub
    }

    /// Starts it, and waits until it is ready; says how long that took.
    pub(crate) fn up(&mut self) -> Duration {
        assert!(self.child.is_none(), "the hub runs already");
        let [https, git, health] = self.ports;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let [outer_https, outer_git] = self.replica.as_ref().map_or([https, git], |r| r.doors);
        let began = Instant::now();
        let mut command = Command::new(binary());
        if let Some(replica) = &self.replica {
            command
                .env("LINESMAN_DATABASE_URL_FILE", &replica.database)
                .env("LINESMAN_PEER_LISTEN", format!("{}:0", self.host));
        }
        let child = command
            .arg("hub")
            .arg("--data")
            .arg(self.data())
            .args(["--listen", &format!("{}:{https}", self.host)])
            .args(["--git-listen", &format!("{}:{git}", self.host)])
            .args(["--health-listen", &format!("{}:{health}", self.host)])
            .args(["--url", &format!("https://{}:{outer_https}", self.name)])
            .args(["--git-url", &format!("ssh://git@{}:{outer_git}", self.name)])
            .args(["--agent-image", &self.image])
            .args(["--log", self.level])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        super::world::record(&self.directory, child.id());
        self.child = Some(child);
        until("the hub is ready", seconds(60), || {
            let status = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                status.is_none(),
                "the hub ended: {status:?}\n{}",
                self.last_words()
            );
            self.health("/readyz")
                .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
        began.elapsed()
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(&mut self) {
        let child = self.child.as_mut().expect("the hub runs");
        run(Command::new("kill")
            .arg("-TERM")
            .arg(child.id().to_string()));
        until("the hub ends after SIGTERM", seconds(40), || {
            self.child.as_mut().unwrap().try_wait().unwrap().is_some()
        });
        self.child = None;
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends SIGKILL and does not wait: [`Hub::kill`] does.
    pub(crate) fn strike(&self) {
        let child = self.child.as_ref().expect("the hub runs");
        run(Command::new("kill")
            .arg("-KILL")
            .arg(child.id().to_string()));
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("hub")
    }

    pub(crate) fn log(&self) -> PathBuf {
        let name = self.replica.as_ref().map_or("hub", |r| r.name);
        self.directory.join(format!("{name}.log"))
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.ports[0])
    }

    pub(crate) fn https_port(&self) -> u16 {
        self.ports[0]
    }

    pub(crate) fn git_port(&self) -> u16 {
        self.ports[1]
    }

    /// Where it serves Git.
    pub(crate) fn git_address(&self) -> String {
        format!("{}:{}", self.host, self.git_port())
    }

    /// Where the CLI keeps what it is told to remember.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.data().join("admin.token"))
            .unwrap()
            .trim()
            .to_owned()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.data().join("ca.crt")
    }

    /// A verb of the CLI, as the hub's admin.
    pub(crate) fn cli(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args);
        self.environment(&mut command);
        command
    }

    /// Runs a verb; panics where it fails.
    pub(crate) fn linesman(&self, args: &[&str]) -> String {
        run(&mut self.cli(args))
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.linesman(&all)).unwrap()
    }

    /// The same; `Err` with what it said where it fails.
    pub(crate) fn try_json(&self, args: &[&str]) -> Result<serde_json::Value, String> {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        let output = output(&mut self.cli(&all));
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
    }

    /// What the CLI and kubectl's plugin read.
    pub(crate) fn environment(&self, command: &mut Command) {
        command
            .env("LINESMAN_HUB", self.url())
            .env("LINESMAN_TOKEN_FILE", self.data().join("admin.token"))
            .env("LINESMAN_CA_FILE", self.ca())
            .env("XDG_STATE_HOME", self.state());
    }

    /// A GET on the health port; the whole answer.
    pub(crate) fn health(&self, path: &str) -> std::io::Result<String> {
        let address = format!("{}:{}", self.host, self.ports[2]);
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(seconds(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.kill();
    }
}

/// All held until the last is chosen, or one could be given twice.
fn free_ports(host: &str) -> [u16; 3] {
    let held = [(); 3].map(|()| TcpListener::bind((host, 0)).unwrap());
    held.each_ref()
        .map(|listener| listener.local_addr().unwrap().port())
}
