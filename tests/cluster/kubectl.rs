//! Everything that kubectl does, through the line: sessions by WebSocket and by SPDY, streams, writes of every
//! kind, and large answers. The Pods run on the lab's real kubelet.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use linesman::clock;
use linesman::keys::sha256_hex;
use serde_json::json;

use crate::support::audit::Mark;
use crate::support::place::{output, run};
use crate::support::world::{self, CLUSTER, World};
use crate::support::{eventually, figure, seconds, until};

mod aggregated;
mod attached;
pub(crate) mod bare;
mod benches;
mod bulk;
mod cancelled;
mod clients;
mod fallback;
mod forms;
mod helm;
mod left;
mod logs;
mod long;
mod objects;
mod older;
mod own;
mod replicas;
mod revoked;
mod sessions;
mod slow;
mod soak;
mod stalled;
mod switched_off;
mod traced;

pub(crate) const NAMESPACE: &str = "kubectl-tests";
pub(crate) const POD: &str = "box";

/// kubectl's two ways of carrying exec, attach, cp and port-forward.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    WebSocket,
    Spdy,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::WebSocket, Self::Spdy];

    fn kubectl(self, world: &World, args: &[&str]) -> Command {
        let mut command = world.through_line();
        command.args(["-n", NAMESPACE]).args(args);
        self.choose(&mut command);
        command
    }

    /// Makes a kubectl use this one alone.
    fn choose(self, kubectl: &mut Command) {
        let on = matches!(self, Self::WebSocket).to_string();
        kubectl.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &on);
        kubectl.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &on);
    }

    /// How often `kubectl cp` may go on where a copy from the Pod ended. By WebSocket it is the API server that pings the kubelet,
    /// five seconds after a session began, and that ping can meet its end, with the hub or without (kubernetes/kubernetes#60140); what
    /// breaks between here and the API server is an error at once. By SPDY the pings are kubectl's, which the agent keeps back.
    const fn retries(self) -> &'static str {
        match self {
            Self::WebSocket => "--retries=10",
            Self::Spdy => "--retries=0",
        }
    }
}

/// The kubeconfig of a new user with this grant.
pub(crate) fn user(world: &World, name: &str, what: &[&str]) -> PathBuf {
    let hub = &world.hub;
    hub.linesman(&["user", "add", name, "--role", "viewer"]);
    let subject = format!("user:{name}");
    let grant = ["grant", "add", &subject, "--cluster", CLUSTER];
    hub.linesman(&[&grant[..], what].concat());
    let token = world.directory.join(format!("{name}.token"));
    let made = [
        "token", "create", "--user", name, "--title", "tests", "--for", "1h",
    ];
    fs::write(&token, hub.linesman(&made)).unwrap();
    let kubeconfig = world.directory.join(format!("{name}.kubeconfig"));
    let mut command = hub.cli(&["kubeconfig", CLUSTER]);
    command.env("LINESMAN_TOKEN_FILE", &token);
    fs::write(&kubeconfig, run(&mut command)).unwrap();
    kubeconfig
}

/// The world with its line up and a Pod to play with: it echoes its input into its log, serves `/work/www` on port
/// 8080, and can write below `/work`.
pub(crate) fn ready(world: &World) {
    until("the line is up", seconds(60), || world.line_is_up());
    let file = world.directory.join("box.yaml");
    fs::write(&file, POD_YAML).unwrap();
    world.apply(&file);
    run(world.place.kubectl().args([
        "-n",
        NAMESPACE,
        "wait",
        "--for=condition=Ready",
        "--timeout=60s",
        "pod/box",
    ]));
}

const POD_YAML: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: kubectl-tests}
---
apiVersion: v1
kind: Pod
metadata: {name: box, namespace: kubectl-tests}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: work, emptyDir: {}}]
  containers:
  - name: box
    image: lab.invalid/busybox:1
    imagePullPolicy: IfNotPresent
    stdin: true
    command:
    - sh
    - -c
    - |
      mkdir -p /work/www && head -c 1048576 /dev/urandom >/work/www/page
      httpd -p 8080 -h /work/www
      while read -r line; do echo "got $line"; done
      sleep 3600
    volumeMounts: [{name: work, mountPath: /work}]
    readinessProbe: {httpGet: {port: 8080, path: /page}, periodSeconds: 1}
"#;

/// Killed and joined when the test is over, however it ends.
pub(crate) struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> (Self, Receiver<String>) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        (Self(child), lines)
    }

    /// Whether it has ended by itself.
    fn over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _joined = self.0.wait();
    }
}

/// The first line that `wanted` likes.
fn line(lines: &Receiver<String>, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + seconds(60);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let next = lines.recv_timeout(left);
        let next = next.unwrap_or_else(|e| panic!("{what}: {e}"));
        if wanted(&next) {
            return next;
        }
    }
}

fn exit_code(command: &mut Command) -> i32 {
    output(command).status.code().unwrap()
}

/// Feeds `input` and gives what came out.
fn fed(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    });
    assert!(child.wait().unwrap().success(), "{command:?}");
    out
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n * 31 + n / 251) % 251).unwrap())
        .collect()
}

/// A plain request on loopback.
fn ask(port: u16, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(seconds(60))).unwrap();
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    socket
}

/// The body of a 200 with a length.
fn body(mut socket: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = answer.split_off(end.expect("a whole head") + 4);
    let head = String::from_utf8_lossy(&answer).into_owned();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body
}

/// L2: the logs of several Pods at once, each line as it is written.
#[test]
#[ignore = "needs a real cluster: make test"]
fn logs_of_several_pods_follow() {
    let world = world::adopted();
    ready(&world);
    let pods: Vec<String> = (1..=3).map(|n| format!("talk-{n}")).collect();
    let list: Vec<_> = pods.iter().map(|name| json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "talk"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "talk", "image": "lab.invalid/busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "mkfifo /tmp/say; echo ready; while read -r line; do echo $line; done <>/tmp/say"],
        }]},
    })).collect();
    let file = world.directory.join("talk.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": list});
    fs::write(&file, list.to_string()).unwrap();
    world.apply(&file);
    let kubectl = |args: &[&str]| Protocol::WebSocket.kubectl(&world, args);
    run(&mut kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=60s",
        "pod",
        "-l",
        "app=talk",
    ]));
    let mut logs = kubectl(&[
        "logs",
        "-f",
        "-l",
        "app=talk",
        "--prefix",
        "--max-log-requests=5",
    ]);
    let (_following, lines) = Running::start(&mut logs);
    // What is said before there is a pipe for it would be a file in its place.
    let mut awaited = pods.clone();
    while !awaited.is_empty() {
        let shown = line(&lines, "each Pod has begun", |line| line.ends_with("ready"));
        awaited.retain(|pod| !shown.contains(pod));
    }
    for round in 1..=3 {
        for pod in &pods {
            let said = format!("round {round} of {pod}");
            let say = format!("echo '{said}' >/tmp/say");
            run(&mut kubectl(&["exec", pod, "--", "sh", "-c", &say]));
            let shown = line(&lines, "the line is followed", |line| line.ends_with(&said));
            assert!(shown.contains(pod), "{shown}");
        }
    }
    run(&mut kubectl(&[
        "delete",
        "pod",
        "-l",
        "app=talk",
        "--wait=false",
    ]));
}

/// L8: a watch and a log that are left end at the API server.
#[test]
#[ignore = "needs a real cluster: make test"]
fn leaving_ends_the_request_at_the_api_server() {
    let world = world::adopted();
    ready(&world);
    for (what, args) in [
        ("watch", &["get", "pods", "-w", "-o", "name"][..]),
        ("logs -f", &["logs", "-f", POD][..]),
    ] {
        if what == "logs -f" {
            fed(
                &mut Protocol::WebSocket.kubectl(&world, &["attach", "-q", "-i", POD]),
                b"a first line\n",
            );
        }
        let mark = Mark::now(&world.audit);
        let kubectl = Protocol::WebSocket.kubectl(&world, args);
        let (running, lines) = Running::start(&mut left::interruptible(&kubectl));
        line(&lines, "it runs", |_| true);
        // What kubectl shows first is of a list, before it watches.
        until("it is at the API server", seconds(30), || {
            !long_requests(&mark, what, "ResponseStarted").is_empty()
        });
        let left = clock::now();
        run(Command::new("kill").args(["-INT", &running.0.id().to_string()]));
        let (at, _) = eventually("the API server has ended it", seconds(30), || {
            let ended = long_requests(&mark, what, "ResponseComplete");
            ended.first().copied().ok_or("it goes on")
        });
        let took = at - left;
        figure(
            "L8",
            &format!("Ctrl-C of kubectl {what} → request ended at the API server"),
            "< 0.1 s",
            format!("{:.3} s", took.as_seconds_f64()),
        );
        assert!(took < time::Duration::seconds(5), "{took}");
    }
}

/// When the line's long requests of our namespace came to that stage since then, by the API server's audit log.
fn long_requests(since: &Mark, what: &str, stage: &str) -> Vec<time::OffsetDateTime> {
    let wanted = |event: &serde_json::Value| {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        event["stage"] == stage
            && event["objectRef"]["namespace"] == NAMESPACE
            && !event["impersonatedUser"].is_null()
            && match what {
                "watch" => event["verb"] == "watch",
                _ => uri.contains("/log?") && uri.contains("follow=true"),
            }
    };
    let events = since.events().into_iter();
    events
        .filter(wanted)
        .filter_map(|event| {
            let at = event["stageTimestamp"].as_str()?;
            time::OffsetDateTime::parse(at, &time::format_description::well_known::Rfc3339).ok()
        })
        .collect()
}

/// `kubectl proxy` serves the cluster to a plain client.
#[test]
#[ignore = "needs a real cluster: make test"]
fn kubectl_proxy_serves_the_cluster() {
    let world = world::adopted();
    ready(&world);
    let (_proxy, lines) = Running::start(
        &mut Protocol::WebSocket.kubectl(&world, &["proxy", "--port=0", "--append-server-path"]),
    );
    let told = line(&lines, "the address is told", |line| {
        line.contains("127.0.0.1:")
    });
    let port = told.rsplit(':').next().unwrap().trim().parse().unwrap();
    let pod = body(ask(port, "/api/v1/namespaces/kubectl-tests/pods/box"));
    assert!(
        String::from_utf8_lossy(&pod).contains("\"name\":\"box\"")
            || String::from_utf8_lossy(&pod).contains("\"name\": \"box\"")
    );
    // What a Pod serves, through the API server's own proxy.
    let page = body(ask(
        port,
        "/api/v1/namespaces/kubectl-tests/pods/box:8080/proxy/page",
    ));
    assert_eq!(page.len(), 1 << 20);
    let direct = run(&mut Protocol::WebSocket
        .kubectl(&world, &["exec", POD, "--", "sha256sum", "/work/www/page"]));
    assert!(direct.starts_with(&sha256_hex(&page)), "{direct}");
}
