//! A hub that takes connections and says nothing, one that nobody listens to, and one whose audit file nobody reads.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncBufReadExt as _;
use tokio::time::timeout;

use super::{Home, catches};
use crate::wait::until;

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(30);

/// `--timeout` holds whatever a call of its own may take, and it is the hub that is blamed.
#[test]
fn a_wait_ends_in_its_time_where_the_hub_says_nothing() {
    let home = Home::new();
    // The system takes connections for it; nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    home.session(&url, "lmt1.a.b", None);
    let began = Instant::now();
    let waited = home.run(&["cluster", "wait", "eu1", "--timeout", "1s"]);
    waited.fails(6, "1s passed and the hub did not answer");
    assert!(waited.err.contains("next:  check the way to"), "{waited:?}");
    // A call to the hub has 30 s.
    assert!(began.elapsed() < Duration::from_secs(20), "{waited:?}");
}

/// People see each step when it is known, not when the last one is.
#[test]
fn the_doctor_tells_of_the_port_before_the_hub_has_answered() {
    let home = Home::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    home.session(&format!("https://{at}"), "lmt1.a.b", None);
    let began = Instant::now();
    let mut doctor = home
        .linesman(&["doctor"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let rows = BufReader::new(doctor.stdout.take().unwrap()).lines();
    let rows: Vec<String> = rows.take(3).map(Result::unwrap).collect();
    // A call to the hub has 30 s.
    assert!(began.elapsed() < Duration::from_secs(20), "{rows:?}");
    doctor.kill().unwrap();
    doctor.wait().unwrap();
    let found = [
        "END      CHECK                STATE   FOUND".to_owned(),
        "local    dns                  ok      127.0.0.1 is 127.0.0.1".to_owned(),
        format!(
            "local    tcp                  ok      port {} takes connections",
            at.port()
        ),
    ];
    assert_eq!(rows, found);
}

/// Who reads a hub's words may end before it: it serves on, until it is told to stop.
#[tokio::test]
async fn a_hub_whose_words_nobody_reads_serves_until_it_is_stopped() {
    let home = Home::new();
    let data = home.0.join("hub");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let anywhere = ["--listen", "--git-listen", "--health-listen"];
    let anywhere = anywhere.map(|flag| [flag, "127.0.0.1:0"]).concat();
    let mut command = home.linesman(&[
        "hub",
        "--url",
        "https://hub.example.org",
        "--agent-image",
        "r/a:1",
    ]);
    command.args(anywhere).arg("--data").arg(data);
    command.stdout(writer).stderr(Stdio::piped());
    let mut hub = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = tokio::io::BufReader::new(hub.stderr.take().unwrap()).lines();
    let mut told = String::new();
    let serves = async {
        while !told.contains("say where the hub is") {
            let line = said.next_line().await.unwrap();
            assert!(line.is_some(), "it ended: {told}");
            told += &line.unwrap_or_default();
        }
    };
    timeout(PATIENCE, serves).await.expect("it serves");
    let pid = hub.id().unwrap().to_string();
    until("it catches SIGTERM", PATIENCE, async || catches(&pid, 15)).await;
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(stopped.success());
    let ends = async {
        while let Some(line) = said.next_line().await.unwrap() {
            told += &line;
        }
        hub.wait().await.unwrap()
    };
    let ended = timeout(PATIENCE, ends).await.expect("it ends");
    assert_eq!(ended.code(), Some(0), "{told}");
    assert!(told.contains("stopping"), "{told}");
}

/// Systems give a process few files at first, which so many agents use up, and more to whoever asks.
#[tokio::test]
async fn a_hub_takes_as_many_files_as_it_may_and_says_where_those_are_few() {
    let home = Home::new();
    let data = home.0.join("hub");
    let anywhere = ["--listen", "--git-listen", "--health-listen"];
    let anywhere = anywhere.map(|flag| [flag, "127.0.0.1:0"]).concat();
    let mut plain = home.linesman(&["hub", "--agent-image", "r/a:1"]);
    plain.args(anywhere).arg("--data").arg(data);
    let mut bound = tokio::process::Command::new("sh");
    let script = "ulimit -Sn 256; ulimit -Hn 1024; exec \"$0\" \"$@\"";
    bound.args(["-c", script]).arg(plain.get_program());
    bound.args(plain.get_args()).env_clear();
    bound.env("PATH", std::env::var_os("PATH").unwrap());
    bound.stdin(Stdio::null()).stdout(Stdio::null());
    bound.stderr(Stdio::piped()).current_dir(&home.0);
    let mut hub = bound.kill_on_drop(true).spawn().unwrap();
    let mut said = tokio::io::BufReader::new(hub.stderr.take().unwrap()).lines();
    let warns = async {
        while let Some(line) = said.next_line().await.unwrap() {
            if line.contains("LimitNOFILE") {
                return;
            }
        }
        panic!("it ended");
    };
    timeout(PATIENCE, warns).await.expect("it says so");
    let limits = format!("/proc/{}/limits", hub.id().unwrap());
    let limits = std::fs::read_to_string(limits).unwrap();
    let files = limits.lines().find(|l| l.starts_with("Max open files"));
    let files: Vec<&str> = files.unwrap().split_whitespace().skip(3).take(2).collect();
    assert_eq!(files, ["1024", "1024"]);
    hub.kill().await.unwrap();
}

/// Opening a pipe that nobody reads hangs, as a mount does whose server is away: that shows while it does, and keeps no hub that is to end.
#[tokio::test]
async fn a_hub_whose_audit_file_hangs_ends_when_it_is_told_to() {
    let home = Home::new();
    let (data, pipe) = (home.0.join("hub"), home.0.join("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let anywhere = ["--listen", "--git-listen", "--health-listen"];
    let anywhere = anywhere.map(|flag| [flag, "127.0.0.1:0"]).concat();
    let mut command = home.linesman(&["hub", "--agent-image", "r/a:1", "--drain", "1s"]);
    command.args(anywhere).arg("--data").arg(&data);
    command.arg("--audit-file").arg(&pipe);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut hub = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = tokio::io::BufReader::new(hub.stdout.take().unwrap()).lines();
    let (mut url, mut health) = (None, None);
    while url.is_none() || health.is_none() {
        let line = timeout(PATIENCE, said.next_line()).await.unwrap();
        let line = line.unwrap().expect("it serves");
        let value = |key: &str| line.strip_prefix(key).map(|text| text.trim().to_owned());
        url = url.or_else(|| value("hub"));
        health = health.or_else(|| value("health"));
    }
    let file = |name: &str| data.join(name).display().to_string();
    let (token, ca) = (file("admin.token"), file("ca.crt"));
    let url = url.unwrap();
    let login = ["login", &url, "--token-file", &token, "--ca", &ca];
    for verb in [&login[..], &["user", "add", "ada"]] {
        let ran = home.run(verb);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    let health = health.unwrap();
    let metrics = format!("{}/metrics", health.split_once("/readyz").unwrap().0);
    let behind = r#"linesman_hub_audit_sink_behind{sink="file"} "#;
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let client = linesman::client::http(None).unwrap();
    until("it is behind", Duration::from_secs(10), async || {
        let text = client.get(&metrics).send().await.unwrap().text().await;
        let text = text.unwrap();
        let waits = text.lines().find_map(|line| line.strip_prefix(behind));
        waits.is_some_and(|waits| waits != "0")
    })
    .await;
    let pid = hub.id().unwrap().to_string();
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(stopped.success());
    let ended = timeout(PATIENCE, hub.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(0));
}
