//! A command that reads nothing of its input for a while, or ever.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use linesman::keys::sha256_hex;
use serde_json::Value;

use super::revoked::by;
use super::{POD, Protocol, Running, fed, line, pattern, ready, user};
use crate::support::place::output;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

const USER: &str = "stalled";
/// Longer than any connection on the way may have bytes that are not acknowledged, and shorter than kubectl waits for a write.
const LATE: &str = "sleep 45; sha256sum";
/// More than all that lies between kubectl and a command that reads nothing.
const INPUT: usize = 64 << 20;

/// L3: what runs in a Pod takes what is sent to it when it likes: a window that stays shut is no peer that is gone.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_command_that_begins_to_read_late_gets_all_of_its_input() {
    let world = world::adopted();
    ready(&world);
    let input = pattern(INPUT);
    let expected = format!("{}  -\n", sha256_hex(&input));
    let sums = thread::scope(|scope| {
        let readers = Protocol::ALL.map(|protocol| {
            let mut late = protocol.kubectl(&world, &["exec", "-i", POD, "--", "sh", "-c", LATE]);
            let input = &input;
            scope.spawn(move || fed(&mut late, input))
        });
        readers.map(|sum| String::from_utf8(sum.join().unwrap()).unwrap())
    });
    assert_eq!(sums, [expected.clone(), expected]);
}

/// L8: whose end lies behind what nobody reads is found out about; without the hub the API server keeps such a session until the
/// command ends.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_user_who_is_killed_while_his_command_reads_nothing_leaves_no_session() {
    let world = world::adopted();
    ready(&world);
    let kubeconfig = user(&world, USER, &["--group", "admin"]);
    until("the grant is in force", seconds(30), || {
        let mut get = by(
            &world,
            &kubeconfig,
            Protocol::WebSocket,
            &["get", "pod", POD],
        );
        output(&mut get).status.success()
    });
    for protocol in Protocol::ALL {
        let command = [
            "exec",
            "-i",
            POD,
            "--",
            "sh",
            "-c",
            "echo begun; exec sleep 300",
        ];
        let before = ended(&world).len();
        let (mut running, lines) = Running::start(&mut by(&world, &kubeconfig, protocol, &command));
        line(&lines, "it runs", |line| line == "begun");
        let taken = Arc::new(AtomicUsize::new(0));
        let (mut stdin, counted) = (running.0.stdin.take().unwrap(), taken.clone());
        let feeding = thread::spawn(move || {
            let chunk = [b'x'; 4096];
            while stdin.write_all(&chunk).is_ok() {
                counted.fetch_add(chunk.len(), Ordering::Relaxed);
            }
        });
        let mut last = (0, Instant::now());
        until("nobody takes any more", seconds(60), || {
            let now = taken.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            }
            now > 0 && last.1.elapsed() > seconds(2)
        });
        assert_eq!(ended(&world).len(), before, "it goes on");
        let killed = Instant::now();
        drop(running);
        feeding.join().unwrap();
        let (rows, _) = eventually("its end is on record", seconds(20), || {
            let rows = ended(&world);
            (rows.len() > before).then_some(rows).ok_or("it is not")
        });
        let took = killed.elapsed();
        figure(
            "L8",
            &format!(
                "kubectl exec by {protocol:?} killed while its command reads nothing → session over, on record"
            ),
            "≤ 10 s",
            shown(took),
        );
        assert_eq!(
            (rows.len(), &rows[0]["code"]),
            (before + 1, &Value::from(101)),
            "{rows:?}"
        );
    }
}

/// The user's sessions that are over, the newest first.
fn ended(world: &World) -> Vec<Value> {
    let list = ["audit", "list", "--user", USER, "--limit", "500"];
    let rows = world.hub.json(&list);
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["stage"] == "close" && row["action"] == "kube.exec")
        .cloned()
        .collect()
}
