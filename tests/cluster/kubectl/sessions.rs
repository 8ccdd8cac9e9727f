//! exec, attach, cp and port-forward, by WebSocket and by SPDY.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use linesman::keys::sha256_hex;

use super::revoked::by;
use super::{
    NAMESPACE, POD, Protocol, Running, ask, body, exit_code, fed, line, pattern, ready, user,
};
use crate::support::place::{output, run};
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// L3: exit codes, output by channel, input to its end, a terminal with its size.
#[test]
#[ignore = "needs a real cluster: make test"]
fn exec_carries_codes_input_and_terminals() {
    exec_works(&world::adopted());
}

/// What exec carries, by both protocols.
pub(super) fn exec_works(world: &World) {
    ready(world);
    for protocol in Protocol::ALL {
        let exec = |args: &[&str]| {
            let all = [&["exec", POD, "--"], args].concat();
            protocol.kubectl(world, &all)
        };
        assert_eq!(exit_code(&mut exec(&["true"])), 0, "{protocol:?}");
        assert_eq!(exit_code(&mut exec(&["sh", "-c", "exit 1"])), 1);
        assert_eq!(exit_code(&mut exec(&["sh", "-c", "kill -9 $$"])), 137);
        let both = output(&mut exec(&["sh", "-c", "echo out; echo err >&2"]));
        assert_eq!(both.stdout, b"out\n", "{protocol:?}");
        assert_eq!(both.stderr, b"err\n", "{protocol:?}");
        let input = pattern(8 << 20);
        let sum = fed(
            &mut protocol.kubectl(world, &["exec", "-i", POD, "--", "sha256sum"]),
            &input,
        );
        let expected = format!("{}  -\n", sha256_hex(&input));
        assert_eq!(String::from_utf8_lossy(&sum), expected, "{protocol:?}");
        terminal(
            &protocol.kubectl(world, &UNTIL_SIZED),
            &world.directory.join("change"),
        );
    }
}

pub(super) const UNTIL_SIZED: [&str; 9] = [
    "exec",
    "-it",
    POD,
    "--",
    "timeout",
    "30",
    "sh",
    "-c",
    "for size in 45:123 50:99; do until test $(stty size | tr \" \" :) = $size; do sleep 0.1; done; echo $size; done",
];

/// kubectl takes a terminal's size only from a terminal, sends it once the session runs, and each time that it changes: here once
/// the file `change` is there. Its arguments are [`UNTIL_SIZED`].
pub(super) fn terminal(kubectl: &Command, change: &Path) {
    // What one before left says nothing of this one.
    fs::remove_file(change).ok();
    let later = format!(
        "timeout 60 sh -c 'until test -e {}; do sleep 0.1; done'; stty rows 50 cols 99 </dev/tty",
        change.display()
    );
    let inside = format!("stty rows 45 cols 123; ({later}) & {}", shell(kubectl));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &inside, "/dev/null"]);
    for (key, value) in kubectl.get_envs() {
        terminal.env(key, value.unwrap());
    }
    // Its input stays open as long as it runs.
    let (mut terminal, lines) = Running::start(&mut terminal);
    line(&lines, "the container sees the size", |line| {
        line.trim_end() == "45:123"
    });
    fs::write(change, "").unwrap();
    line(&lines, "the container sees the next size", |line| {
        line.trim_end() == "50:99"
    });
    until("the session ends", seconds(30), || terminal.over());
    assert!(terminal.0.wait().unwrap().success(), "{kubectl:?}");
}

/// The exit codes on record of a user's sessions that are over, the newest first.
fn exits(world: &World, user: &str) -> Vec<Option<i64>> {
    let list = ["audit", "list", "--user", user, "--limit", "500"];
    let rows = world.hub.json(&list);
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["stage"] == "close" && row["action"] == "kube.exec")
        .map(|row| row["exit"].as_i64())
        .collect()
}

/// L48: by either protocol the record of a session has the code with which its command ended, where there was one.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_record_of_a_session_has_its_exit_code() {
    const USER: &str = "exiter";
    let world = world::adopted();
    ready(&world);
    let kubeconfig = user(&world, USER, &["--group", "admin"]);
    until("the grant is in force", seconds(30), || {
        let get = ["get", "pod", POD];
        let get = output(&mut by(&world, &kubeconfig, Protocol::WebSocket, &get));
        get.status.success()
    });
    for protocol in Protocol::ALL {
        let before = exits(&world, USER).len();
        for (command, code) in [
            (&["true"][..], 0),
            (&["sh", "-c", "echo out; echo err >&2; exit 1"], 1),
            (&["sh", "-c", "kill -9 $$"], 137),
            // The runtime has none for what it cannot start.
            (&["no-such-program"], 1),
        ] {
            let args = [&["exec", POD, "--"], command].concat();
            let mut exec = by(&world, &kubeconfig, protocol, &args);
            assert_eq!(exit_code(&mut exec), code);
        }
        let wanted = [None, Some(137), Some(1), Some(0)];
        eventually("they are on record", seconds(30), || {
            let mut found = exits(&world, USER);
            found.truncate(found.len() - before);
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{protocol:?}: {found:?}"))
            }
        });
    }
}

/// L3: a session that the API server refuses is refused in its own words, by whatever protocol it was tried.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_refused_session_shows_the_api_servers_words() {
    let world = world::adopted();
    ready(&world);
    for protocol in Protocol::ALL {
        for args in [
            &["exec", "none", "--", "true"][..],
            &["exec", POD, "-c", "none", "--", "true"],
            &["attach", POD, "-c", "none"],
            &["port-forward", "pod/none", ":1"],
        ] {
            let mut direct = world.place.kubectl();
            let direct = output(direct.args(["-n", NAMESPACE]).args(args));
            let line = output(&mut protocol.kubectl(&world, args));
            let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(!line.status.success(), "{protocol:?} {args:?}");
            assert_eq!(
                said(&line.stderr),
                said(&direct.stderr),
                "{protocol:?} {args:?}"
            );
        }
    }
}

/// The command as a shell would be told it.
fn shell(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<_> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    quoted.join(" ")
}

/// L4: input typed into an attached container is in its log.
#[test]
#[ignore = "needs a real cluster: make test"]
fn attach_reaches_the_container() {
    attach_works(&world::adopted());
}

/// What is typed into an attached container.
pub(super) fn attach_works(world: &World) {
    ready(world);
    for protocol in Protocol::ALL {
        let mut attach = protocol.kubectl(world, &["attach", "-q", "-i", POD]);
        let (mut attached, lines) = Running::start(&mut attach);
        let mut stdin = attached.0.stdin.take().unwrap();
        let said = format!("{protocol:?}");
        writeln!(stdin, "{said}").unwrap();
        let expected = format!("got {said}");
        line(&lines, "the container answers", |line| line == expected);
    }
}

/// L4: a file of 64 MiB there and back is the same file.
#[test]
#[ignore = "needs a real cluster: make test"]
fn cp_brings_large_files_both_ways() {
    cp_works(&world::adopted(), 64, "");
}

/// A file of so many MiB there and back. `at` is where the hub is asked, for the figures.
pub(super) fn cp_works(world: &World, size: usize, at: &str) {
    ready(world);
    let (there, back) = (world.directory.join("there"), world.directory.join("back"));
    let mut noise = Command::new("head");
    noise.args(["-c", &format!("{size}M"), "/dev/urandom"]);
    run(noise.stdout(fs::File::create(&there).unwrap()));
    let expected = file_sum(&there);
    for protocol in Protocol::ALL {
        let name = format!("/work/{protocol:?}");
        let remote = format!("{POD}:{name}");
        let cp = |way: &str, arguments: &[&str]| {
            let began = Instant::now();
            let mut cp = protocol.kubectl(world, &["cp"]);
            let done = output(cp.args(arguments));
            let took = began.elapsed();
            let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
            assert!(done.status.success(), "{cp:?}: {}\n{said}", done.status);
            let again = match said.matches("Resuming copy").count() {
                0 => String::new(),
                n => format!(", begun again {n} times"),
            };
            figure(
                "L4",
                &format!("kubectl cp of {size} MiB {way} the Pod by {protocol:?}{at}"),
                "equal",
                format!("{}{again}", shown(took)),
            );
        };
        cp("to", &[there.to_str().unwrap(), &remote]);
        let sum = run(&mut protocol.kubectl(world, &["exec", POD, "--", "sha256sum", &name]));
        assert_eq!(sum.split(' ').next(), Some(&expected[..]), "{protocol:?}");
        cp(
            "from",
            &[protocol.retries(), &remote, back.to_str().unwrap()],
        );
        assert_eq!(file_sum(&back), expected, "{protocol:?}");
        fs::remove_file(&back).unwrap();
        run(&mut protocol.kubectl(world, &["exec", POD, "--", "rm", &name]));
    }
    fs::remove_file(&there).unwrap();
}

/// The sum of a file that may be larger than memory.
fn file_sum(file: &Path) -> String {
    let told = run(Command::new("sha256sum").arg(file));
    told.split(' ').next().unwrap().to_owned()
}

/// L4: 50 requests at once through one port-forward; one that breaks off disturbs none.
#[test]
#[ignore = "needs a real cluster: make test"]
fn port_forward_carries_parallel_requests() {
    port_forward_works(&world::adopted());
}

/// Many requests at once through one port-forward.
pub(super) fn port_forward_works(world: &World) {
    ready(world);
    let sum =
        run(&mut Protocol::WebSocket
            .kubectl(world, &["exec", POD, "--", "sha256sum", "work/www/page"]));
    let expected = sum.split(' ').next().unwrap();
    for protocol in Protocol::ALL {
        let mut forward = protocol.kubectl(world, &["port-forward", "pod/box", ":8080"]);
        let (_forwarding, lines) = Running::start(&mut forward);
        let told = line(&lines, "the port is told", |line| {
            line.contains("127.0.0.1:")
        });
        let port = told.split("127.0.0.1:").nth(1).unwrap();
        let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
        thread::scope(|scope| {
            let broken = scope.spawn(move || {
                let mut socket = ask(port, "/page");
                socket.read_exact(&mut [0; 1000]).unwrap();
                socket.shutdown(Shutdown::Both).unwrap();
            });
            let asked: Vec<_> = (0..50)
                .map(|_| scope.spawn(move || body(ask(port, "/page"))))
                .collect();
            broken.join().unwrap();
            for body in asked {
                let body = body.join().unwrap();
                assert_eq!(sha256_hex(&body), expected, "{protocol:?}");
            }
        });
    }
}
