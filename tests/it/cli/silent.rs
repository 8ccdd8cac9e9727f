//! A hub that takes connections and says nothing, and one that nobody listens to.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Home, catches};
use crate::wait::until;

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
    assert!(began.elapsed() < Duration::from_secs(8), "{waited:?}");
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
    let mut hub = home
        .linesman(&[
            "hub",
            "--url",
            "https://hub.example.org",
            "--agent-image",
            "r/a:1",
        ])
        .args(anywhere)
        .arg("--data")
        .arg(data)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(hub.stderr.take().unwrap());
    let (mut line, mut told) = (String::new(), String::new());
    while !line.contains("say where the hub is") {
        line.clear();
        let more = said.read_line(&mut line).unwrap();
        told += &line;
        assert!(more > 0, "it ended: {told}");
    }
    let pid = hub.id().to_string();
    until("it catches SIGTERM", Duration::from_secs(10), async || {
        catches(&pid, 15)
    })
    .await;
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(stopped.success());
    said.read_to_string(&mut told).unwrap();
    assert_eq!(hub.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("stopping"), "{told}");
}
