//! A link of its own: two network namespaces, joined by a pair whose both ends are shaped (`tc tbf`).

use std::process::Command;

/// The hub's address on the link, and the agent's.
const HUB: &str = "192.0.2.1";
const AGENT: &str = "192.0.2.2";
const NOBODY: &str = "02:00:00:00:00:00";

/// The namespaces live as long as this does.
pub(crate) struct Link {
    id: u32,
}

impl Link {
    /// `rate` as in `tc`, with a queue of `queue_ms`. The reason where this machine cannot (not root, no `tc`).
    pub(crate) fn new(rate: &str, queue_ms: u64) -> Result<Self, String> {
        let id = std::process::id();
        let link = Self { id };
        drop(link.remove());
        let (hub, agent) = (link.namespace("hub"), link.namespace("agent"));
        let (a, b) = (format!("lmh{id}"), format!("lma{id}"));
        let shape = |namespace: &str, device: &str| {
            format!(
                "ip netns exec {namespace} tc qdisc add dev {device} root tbf rate {rate} burst 64kb latency {queue_ms}ms"
            )
        };
        for line in [
            format!("ip netns add {hub}"),
            format!("ip netns add {agent}"),
            format!("ip -n {hub} link add name {a} type veth peer name {b} netns {agent}"),
            format!("ip -n {hub} addr add {HUB}/24 dev {a}"),
            format!("ip -n {agent} addr add {AGENT}/24 dev {b}"),
            // Peers whose streams go from socket to socket have those here.
            format!("ip -n {hub} link set lo up"),
            format!("ip -n {agent} link set lo up"),
            format!("ip -n {hub} link set {a} up"),
            format!("ip -n {agent} link set {b} up"),
            shape(&hub, &a),
            shape(&agent, &b),
        ] {
            run(&line)?;
        }
        Ok(link)
    }

    /// From now on what either side sends is lost, and nobody is told: it goes to a hardware address that none has.
    pub(crate) fn cut(&self) {
        self.neighbours(|device, peer| {
            format!("neigh replace {peer} lladdr {NOBODY} dev {device} nud permanent")
        });
    }

    /// Both sides ask anew who has the other's address.
    pub(crate) fn heal(&self) {
        self.neighbours(|device, peer| format!("neigh del {peer} dev {device}"));
    }

    fn neighbours(&self, change: impl Fn(&str, &str) -> String) {
        for (side, device, peer) in [("hub", "lmh", AGENT), ("agent", "lma", HUB)] {
            let change = change(&format!("{device}{}", self.id), peer);
            run(&format!("ip -n {} {change}", self.namespace(side))).unwrap();
        }
    }

    /// `program` in the namespace of `side`.
    pub(crate) fn command(&self, side: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(side), program]);
        command
    }

    pub(crate) fn address(side: &str) -> &'static str {
        if side == "hub" { HUB } else { AGENT }
    }

    fn namespace(&self, side: &str) -> String {
        format!("linesman-bench-{side}-{}", self.id)
    }

    fn remove(&self) -> Result<(), String> {
        for side in ["hub", "agent"] {
            let namespace = self.namespace(side);
            if std::path::Path::new("/run/netns").join(&namespace).exists() {
                run(&format!("ip netns del {namespace}"))?;
            }
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{error}");
        }
    }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{line}: {}", text.trim()))
}
